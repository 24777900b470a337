#include "libpasses/bucket/bucket.h"

#include <catch2/catch.hpp>
#include <chrono>

#include "libgraph/infer/infer.h"
#include "libgraph/op.h"
#include "libgraph/verify/verify.h"
#include "libpasses/bucket/bucket_parts.h"
#include "tests/support/parse.h"
#include "tests/support/random_job.h"

using namespace sg;
using sg::test::parse;
using sg::test::parse_programs;

namespace {

std::string block(const std::string& n) {
  return "  forward layers." + n + "\n    %ga" + n + " = _c10d_functional.all_gather_into_tensor(%a" + n +
         ", 2, @g)\n    %A" + n + " = _c10d_functional.wait_tensor(%ga" + n + ")\n    %gb" + n +
         " = _c10d_functional.all_gather_into_tensor(%b" + n + ", 2, @g)\n    %B" + n +
         " = _c10d_functional.wait_tensor(%gb" + n + ")\n    %m" + n + " = aten.mm(%A" + n + ", %B" + n + ")\n";
}

std::string program(const std::string& ranks, int blocks, const std::string& size = "2") {
  std::string out = "graph rank " + ranks + "\n", body, last;
  for (int i = 0; i < blocks; ++i) {
    const std::string n = std::to_string(i);
    out += "  param %a" + n + " : f32[2, 4] \"layers." + n + ".a.weight\"\n  param %b" + n + " : f32[" + size +
           ", 4] \"layers." + n + ".b.weight\"\n";
    body += block(n), last = n;
  }
  return out + body + "  output %m" + last + "\n";
}

Job inferred_programs(const std::string& programs) {
  Job job = parse_programs(programs);
  for (auto& p : job.programs) infer_missing_types(*p);
  return job;
}

Job two_programs(int blocks) { return inferred_programs(program("0", blocks) + "\n" + program("1", blocks)); }

size_t launches(const Graph& graph) {
  size_t out = 0;
  for (NodeId n : graph.nodes()) out += graph.op_info(n) != nullptr && graph.op_info(n)->has(kCollective);
  return out;
}

Result<Change> run(Job* job, const BucketOptions& options = {}) {
  Diagnostics notes;
  PassContext context{&notes};
  return bucket(job, options, context);
}

size_t findings(const Job& job) {
  Diagnostics out;
  verify(job, {}, &out);
  return out.error_count();
}

}  // namespace

TEST_CASE("programs that differ elsewhere are bucketed alike, and the ranks agree") {
  Job job = two_programs(3);
  REQUIRE(run(&job).ok());
  CHECK(launches(job.programs[0]->graph) == 3);
  CHECK(launches(job.programs[1]->graph) == 3);
  CHECK(findings(job) == 0);
}

TEST_CASE("the verifier catches a schedule that one rank does not follow") {
  // By size, so that the buckets differ: 3 gathers, then 1.
  Job job = two_programs(2);
  REQUIRE(run(&job, {.plan = BucketPlanKind::by_size, .size_bytes = 192, .prefetch = 1}).ok());
  REQUIRE(launches(job.programs[1]->graph) == 2);
  REQUIRE(findings(job) == 0);
  Graph& graph = job.programs[1]->graph;
  std::vector<NodeId> gathers;
  for (NodeId n : graph.nodes())
    if (graph.op_info(n)->has(kCollective)) gathers.push_back(n);
  // Either may go first, but not on one rank alone.
  graph.move_before(gathers[1], graph.first());
  CHECK(findings(job) > 0);
  graph.move_after(gathers[1], gathers[0]);
  CHECK(findings(job) == 0);
}

TEST_CASE("a collective that ranks do not share stays alone") {
  Job job = two_programs(2);
  // Rank 1 has another name for its parameter: nothing shows that it is the same one.
  Pool& pool = *job.pool;
  job.programs[1]->graph.mutable_input(1).fqn = pool.str("layers.7.b.weight");
  Job before(job);
  auto change = run(&job);
  REQUIRE(change.ok());
  CHECK(launches(job.programs[0]->graph) == 3);  // the block of the other parameter is merged
  CHECK(findings(job) == 0);
}

TEST_CASE("the stages of a pipeline have buckets of their own") {
  const std::string header = "sg 1.0 job \"t\" world 4\ngroup @g [0 1] [2 3]\ndevice cpu\n\n";
  for (const bool differs : {false, true}) {
    Job job =
        parse(header + program("0", 3) + "\n" + program("1", 3) + "\n" + program("2", 2) + "\n" + program("3", 2));
    for (auto& p : job.programs) infer_missing_types(*p);
    if (differs) job.programs[3]->graph.mutable_input(1).fqn = job.pool->str("layers.7.b.weight");
    Result<Change> change = run(&job);
    REQUIRE(change.ok());
    CHECK_THAT(change->summary,
               Catch::StartsWith(differs ? "9 collectives -> 5 buckets" : "10 collectives -> 5 buckets"));
    for (size_t p : {0, 1, 2, 3}) CHECK(launches(job.programs[p]->graph) == (p > 1 && !differs ? 2 : 3));
    CHECK(findings(job) == 0);
  }
}

TEST_CASE("what several programs have alike is counted once") {
  Job job = two_programs(3);
  REQUIRE(run(&job).ok());
  const auto again = run(&job);
  REQUIRE(again.ok());
  CHECK(again->summary == "nothing to bucket: what gathers parameters and reduces gradients is in buckets already (3)");
}

TEST_CASE("a limit that no bucket could keep is none where there is nothing to bucket") {
  Job job = parse_programs("graph rank *\n  input %x : f32[64]\n  forward -\n    %y = aten.neg(%x)\n  output %y\n");
  for (auto& p : job.programs) infer_missing_types(*p);
  const auto change = run(&job, BucketOptions{.peak_bytes = 1});
  REQUIRE(change.ok());
  CHECK(!change->changed);
}

TEST_CASE("a bucket is known by the modules of what it still gathers") {
  Job job = inferred_programs(R"(graph rank *
  param %n : f32[2, 4] "norm.weight"
  param %h : f32[8, 4] "head.weight"
  forward -
    %gn = _c10d_functional.all_gather_into_tensor(%n, 2, @g)
    %N = _c10d_functional.wait_tensor(%gn)
    %gh = _c10d_functional.all_gather_into_tensor(%h, 2, @g)
    %H = _c10d_functional.wait_tensor(%gh)
    %m = aten.mm(%H, %N)
  backward -
    %gn2 = _c10d_functional.all_gather_into_tensor(%n, 2, @g)
    %N2 = _c10d_functional.wait_tensor(%gn2)
    %gh2 = _c10d_functional.all_gather_into_tensor(%h, 2, @g)
    %H2 = _c10d_functional.wait_tensor(%gh2)
    %b = aten.mm(%H2, %N2)
  output %m
  output %b
)");
  using namespace bucket_parts;
  const Members members = find_members(job);
  const Plan plan = plan_per_block(members);
  const std::vector<std::string> both = {"norm", "head"};
  REQUIRE(plan.buckets.size() == 2);
  CHECK(plan.modules(plan.buckets[1]) == both);
  const std::optional<Plan> kept = with_one_kept(members, plan);  // the head is kept from the forward
  REQUIRE(kept);
  REQUIRE(kept->buckets.size() == 2);
  CHECK(kept->modules(kept->buckets[0]) == both);
  CHECK(kept->modules(kept->buckets[1]) == std::vector<std::string>{"norm"});
  merge_buckets(&job, members, *kept);
  const Graph& graph = job.programs[0]->graph;
  std::vector<std::vector<std::string>> named;
  for (NodeId n : graph.nodes())
    if (graph.op_info(n)->has(kCollective)) {
      named.emplace_back();
      for (StrId module : graph.meta(n).collective.plan) named.back().emplace_back(job.pool->strings[module]);
    }
  CHECK(named == std::vector<std::vector<std::string>>{both, {"norm"}});
  CHECK(findings(job) == 0);
}

TEST_CASE("random jobs are left valid by every plan") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    const Job job = sg::test::random_job(seed);
    Diagnostics before;
    verify(job, {}, &before);
    if (before.has_errors()) continue;
    for (BucketOptions options :
         {BucketOptions{}, BucketOptions{.plan = BucketPlanKind::by_size, .size_bytes = 4096, .prefetch = 3}}) {
      Job bucketed(job);
      auto change = run(&bucketed, options);
      REQUIRE(change.ok());
      CHECK(findings(bucketed) == 0);
    }
  }
}

TEST_CASE("deep models take linear time") {
  auto seconds = [](int blocks) {
    Job job = inferred_programs(program("*", blocks));
    auto begin = std::chrono::steady_clock::now();
    REQUIRE(run(&job).ok());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  seconds(100);
  CHECK(seconds(4000) < 40 * seconds(400) + 0.5);
}
