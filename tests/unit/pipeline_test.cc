#include "libpasses/pipeline.h"

#include <catch2/catch.hpp>

#include "libgraph/binary/binary.h"
#include "libgraph/edit/freeze.h"
#include "libgraph/edit/rewrite.h"
#include "libgraph/verify/verify.h"
#include "libpasses/bundle.h"
#include "libpasses/pass_order.h"
#include "libpasses/replay.h"
#include "tests/support/parse.h"
#include "tests/support/random_job.h"

using namespace sg;
using sg::test::parse;

namespace {

constexpr const char* kPipelineGraph = R"(sg 1.0 job "t" world 1
graph rank *
  input %x : f32[4]
  forward -
    %a = aten.detach(%x) : f32[4]
    %b = aten.neg(%a) : f32[4]
  output %b
)";

// A pass that leaves an invalid graph.
Result<Change> break_order(Job* job, const PassOptions&, PassContext&) {
  Graph& graph = job->programs[0]->graph;
  graph.move_before(graph.last(), graph.first());
  return Change{true, "broken", {}, {}};
}
constexpr PassInfo kBreaker = {"breaker", "break", {}, Results::bitwise, {}, {}, {}, break_order};

PipelineOptions versioned() {
  PipelineOptions out;
  out.version = "1.2.3";
  return out;
}

Stage clean_stage() { return {find_pass("clean"), {}}; }

}  // namespace

TEST_CASE("passes are found by name, with or without the tool's prefix") {
  REQUIRE(find_pass("clean") != nullptr);
  CHECK(find_pass("sg-clean") == find_pass("clean"));
  CHECK(find_pass("cleam") == nullptr);
}

TEST_CASE("stages are named, timed, and may be left out or end the pipeline") {
  Diagnostics notes;
  auto names = [&](PipelineOptions options) {
    Job job = parse(kPipelineGraph);
    auto reports = run_pipeline(&job, {clean_stage(), clean_stage(), clean_stage()}, options, &notes);
    REQUIRE(reports.ok());
    std::string out;
    for (const StageReport& r : *reports) out += r.name + (r.change.changed ? "+ " : "- ");
    return out;
  };
  CHECK(names(versioned()) == "clean+ clean:2- clean:3- ");
  PipelineOptions options = versioned();
  options.disabled = {"clean", "clean:3"};
  CHECK(names(options) == "clean:2+ ");
  options = versioned();
  options.stop_after = "clean:2";
  CHECK(names(options) == "clean+ clean:2- ");
}

TEST_CASE("a pass that leaves an invalid graph is named, and its input kept") {
  Job job = parse(kPipelineGraph);
  Diagnostics notes;
  std::optional<FailedStage> failed;
  auto reports = run_pipeline(&job, {clean_stage(), {&kBreaker, {}}}, versioned(), &notes, &failed);
  // Cleaning leaves one node: break a graph that has two.
  REQUIRE(reports.ok());
  job = parse(kPipelineGraph);
  reports = run_pipeline(&job, {{&kBreaker, {}}, clean_stage()}, versioned(), &notes, &failed);
  REQUIRE(!reports.ok());
  CHECK(reports.error().kind == ErrorKind::internal);
  CHECK(reports.error().message.find("sg-breaker left an invalid graph") == 0);
  REQUIRE(failed);
  CHECK(failed->rest.size() == 2);
  CHECK(read_binary(failed->input, "kept").ok());
}

TEST_CASE("what a failed stage leaves is one file that is a graph, and its stages run again and fail again") {
  Job job = parse(kPipelineGraph);
  Diagnostics notes;
  std::optional<FailedStage> failed;
  Stage named{find_pass("remat"), {}};
  named.options.add("policy", "full");
  named.options.add("save", "layers.*:mm");
  named.options.add("save", "op=\"odd\" \\ one");
  named.best_effort = true;
  PipelineOptions options = versioned();
  options.best_effort = true;
  REQUIRE_FALSE(run_pipeline(&job, {{&kBreaker, {}}, named}, options, &notes, &failed).ok());
  REQUIRE(failed);
  Result<std::string> bundle = write_bundle(*failed);
  REQUIRE(bundle.ok());
  Job again = read_binary(*bundle, "bundle").value();
  CHECK(again.programs[0]->graph.node_count() == 2);
  Result<BundledStages> taken =
      take_stages(&again, [](std::string_view name) { return name == "breaker" ? &kBreaker : find_pass(name); });
  REQUIRE(taken.ok());
  CHECK(again.extra.empty());
  CHECK(taken->best_effort);
  REQUIRE(taken->stages.size() == 2);
  CHECK(taken->stages[0].pass == &kBreaker);
  CHECK(taken->stages[1].pass == find_pass("remat"));
  CHECK(taken->stages[1].options.values() == named.options.values());
  CHECK_FALSE(taken->stages[0].best_effort);
  CHECK(taken->stages[1].best_effort);
  auto reports = run_pipeline(&again, std::move(taken->stages), versioned(), &notes, &failed);
  REQUIRE_FALSE(reports.ok());
  CHECK(reports.error().message.find("sg-breaker left an invalid graph") == 0);
  // Without the broken pass in the table, the error names the missing pass; a graph that is not a bundle is refused as
  // such.
  again = read_binary(*bundle, "bundle").value();
  CHECK(take_stages(&again).error().message.find("there is no pass `breaker`") != std::string::npos);
  job = parse(kPipelineGraph);
  CHECK(take_stages(&job).error().kind == ErrorKind::unreadable);
  for (const char* text :
       {"1", "[1]", "[{\"pass\":\"clean\"}]", "[{\"pass\":\"clean\",\"options\":{\"a\":1}}]",
        "[{\"pass\":\"clean\",\"options\":{\"a\":[1]}}]", "[{\"pass\":\"clean\",\"options\":{},\"best_effort\":1}]"}) {
    job = parse(kPipelineGraph);
    job.extra = {{job.pool->str("stepgraph.stages"), job.pool->str(text)}};
    CHECK(take_stages(&job).error().message.find("cannot be read") != std::string::npos);
  }
}

TEST_CASE("an error in one of several stages names the stage") {
  Job job = parse(kPipelineGraph);
  Diagnostics notes;
  Stage bad{find_pass("remat"), {}};
  bad.options.add("save", "op=mm");
  auto reports = run_pipeline(&job, {clean_stage(), bad}, versioned(), &notes);
  REQUIRE_FALSE(reports.ok());
  CHECK(reports.error().message.find("sg-remat: --save op=mm") == 0);
}

TEST_CASE("with best effort a stage that cannot be done is left out, and leaves no trace in the graph") {
  Job job = parse(kPipelineGraph), without = parse(kPipelineGraph);
  Diagnostics notes;
  // Changes the job before it fails.
  static constexpr PassInfo kHalf = {
      "half", "give up", {}, Results::bitwise, {}, {}, {}, [](Job* broken, const PassOptions&, PassContext&) {
        broken->programs[0]->graph.set_phase(broken->programs[0]->graph.first(), Phase::backward);
        return Result<Change>(Error{ErrorKind::cannot_apply, "there is no way", {}, "take another"});
      }};
  PipelineOptions options = versioned();
  CHECK(run_pipeline(&job, {clean_stage(), {&kHalf, {}}}, options, &notes).error().message ==
        "sg-half: there is no way");
  options.best_effort = true;
  job = parse(kPipelineGraph);
  auto reports = run_pipeline(&job, {clean_stage(), {&kHalf, {}}}, options, &notes);
  REQUIRE(reports.ok());
  CHECK((*reports)[1].left_out);
  REQUIRE(notes.list().size() == 1);
  CHECK(notes.list()[0].message == "sg-half is left out: there is no way");
  REQUIRE(run_pipeline(&without, {clean_stage()}, options, &notes).ok());
  CHECK(write_binary(job).value() == write_binary(without).value());
}

TEST_CASE("what best effort has left alone is in the history, and is left alone again") {
  const Job before = parse(kPipelineGraph);
  Job job(before);
  Diagnostics notes;
  Stage remat{find_pass("remat"), {}};
  remat.options.add("recompute", "op=gelu");
  PipelineOptions options = versioned();
  CHECK(!run_pipeline(&job, {remat}, options, &notes).ok());
  options.best_effort = true;
  job = Job(before);
  REQUIRE(run_pipeline(&job, {remat}, options, &notes).ok());
  CHECK(history_of(job).back().command() == "sg-remat --best-effort --recompute op=gelu");
  const Result<Replay> again = replay(before, job, 1);
  REQUIRE(again.ok());
  CHECK(again->other.empty());
  REQUIRE(run_pipeline(&job, {clean_stage()}, options, &notes).ok());
  CHECK(history_of(job).back().command() == "sg-clean");  // it has left nothing
}

TEST_CASE("a limit that no order meets is an error, with best effort a warning, and repeated as it was asked for") {
  const Job before = parse(kPipelineGraph);
  Job job(before);
  Diagnostics notes;
  Stage overlap{find_pass("overlap"), {}};
  overlap.options.add("peak", "1");
  const auto refused = run_pipeline(&job, {overlap}, versioned(), &notes);
  REQUIRE(!refused.ok());
  CHECK(refused.error().kind == ErrorKind::cannot_apply);
  CHECK(refused.error().message.find("no order comes under --peak 1 B") != std::string::npos);
  overlap.best_effort = true;
  REQUIRE(run_pipeline(&job, {overlap}, versioned(), &notes).ok());
  REQUIRE(notes.list().size() == 1);
  CHECK(notes.list()[0].message.starts_with("no order comes under --peak 1 B"));
  CHECK(history_of(job).back().command() == "sg-overlap --best-effort --peak 1");
  const Result<Replay> again = replay(before, job, 1);
  REQUIRE(again.ok());
  CHECK(again->other.empty());
}

TEST_CASE("stages in one process leave the bytes that one process each leaves") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Diagnostics notes;
    Job together = test::random_job(seed), apart = test::random_job(seed);
    auto both = run_pipeline(&together, {clean_stage(), clean_stage()}, versioned(), &notes);
    if (!both.ok()) FAIL(seed << ": " << both.error().message);
    for (int i = 0; i < 2; ++i) {
      REQUIRE(run_pipeline(&apart, {clean_stage()}, versioned(), &notes).ok());
      apart = read_binary(write_binary(apart).value(), "pipe").value();
    }
    CHECK(write_binary(together).value() == write_binary(apart).value());
  }
}

TEST_CASE("a pass behind one that it is meant to precede is warned of") {
  Job job = parse(kPipelineGraph);
  Pool& pool = *job.pool;
  job.provenance.push_back({pool.str("sg-remat"), pool.str("0.1.0"), {}, {}});
  const Stage stage = clean_stage();
  CHECK(order_warnings(job, std::span(&stage, 1)).empty());  // there is nothing to clean
  Graph& graph = job.programs[0]->graph;
  NodeMeta meta = graph.meta(graph.last());
  meta.copy = {CopyKind::remat, pool.str("a")};
  graph.set_meta(graph.last(), std::move(meta));
  const auto lines = order_warnings(job, std::span(&stage, 1));
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "sg-clean is meant to run before sg-remat, which has run");
}

TEST_CASE("of overlap only the isolation goes before buckets") {
  const Job job = parse(kPipelineGraph);
  const Stage bucket{find_pass("bucket"), {}}, order{find_pass("overlap"), {}};
  Stage isolation = order;
  isolation.options.add("isolate-only", "");
  CHECK(order_warnings(job, std::array{isolation, bucket, order}).empty());
  const auto lines = order_warnings(job, std::array{bucket, isolation});
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "sg-overlap --isolate-only is meant to run before sg-bucket, which has run");
}

TEST_CASE(
    "a loss head in chunks goes before recomputation as well as behind it, modules do not; offloading comes last") {
  const Job job = parse(kPipelineGraph);
  Stage head{find_pass("chunk"), {}}, modules{find_pass("chunk"), {}};
  head.options.add("auto", "");
  modules.options.add("modules", "layers.*");
  const Stage remat{find_pass("remat"), {}}, offload{find_pass("offload"), {}};
  CHECK(order_warnings(job, std::vector{head, remat}).empty());
  CHECK(order_warnings(job, std::vector{remat, head}).empty());
  CHECK(order_warnings(job, std::vector{modules, remat}).size() == 1);
  CHECK(order_warnings(job, std::vector{remat, modules}).empty());
  for (const Stage& chunk : {head, modules}) {
    CHECK(order_warnings(job, std::vector{chunk, offload}).empty());
    CHECK(order_warnings(job, std::vector{offload, chunk}).size() == 1);
  }
}

TEST_CASE("a copied node has all that belongs to the first, names of its own, and operands by the map") {
  Job job = parse(kPipelineGraph);
  Graph& graph = job.programs[0]->graph;
  const NodeId neg = graph.last();
  const ValueId x = graph.inputs()[0].value;
  const NodeId copy = copy_node(
      &graph, neg, NodeId(), [&](ValueId) { return x; }, "_recomputed");
  CHECK(graph.label(copy) == "b_recomputed");
  CHECK(graph.node(copy).args[0].as_value() == x);
  CHECK(graph.node(copy).op == graph.node(neg).op);
  CHECK(graph.value(graph.node(copy).result(0)).type == graph.value(graph.node(neg).result(0)).type);
  replace_results(&graph, neg, copy);
  CHECK(!graph.is_used(graph.node(neg).result(0)));
  CHECK(graph.outputs()[0].value == graph.node(copy).result(0));
}

// --- frozen nodes: what a bisection over nodes relies on ---

TEST_CASE("a frozen job is valid, and thawed it is what it was") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Job job = sg::test::random_job(seed);
    std::string before = write_binary(job).value();
    freeze_all_but(&job, seed, 2 * seed);
    Diagnostics findings;
    verify(job, VerifyOptions(), &findings);
    INFO("seed " << seed << ": " << (findings.has_errors() ? findings.list()[0].message : ""));
    CHECK_FALSE(findings.has_errors());
    thaw(&job);
    CHECK(write_binary(job).value() == before);
  }
}

TEST_CASE("no pass touches a frozen node, and clean touches those that are not") {
  Diagnostics notes;
  auto nodes_after = [&](size_t begin, size_t end) {
    Job job = parse(kPipelineGraph);
    freeze_all_but(&job, begin, end);
    REQUIRE(run_pipeline(&job, {clean_stage()}, versioned(), &notes).ok());
    thaw(&job);
    return job.programs[0]->graph.node_count();
  };
  CHECK(nodes_after(0, 0) == 2);
  CHECK(nodes_after(1, 2) == 2);
  CHECK(nodes_after(0, 1) == 1);  // the detach
}

TEST_CASE("sg-clean makes any number of writes to one memory functional at once") {
  std::string text =
      "sg 1.0 job \"t\" world 1\ngraph rank *\n  input %x : f32[4]\n  forward -\n    %s0 = aten.neg(%x) : f32[4]\n";
  constexpr int kWrites = 300;
  for (int i = 0; i < kWrites; ++i)
    text += "    %s" + std::to_string(i + 1) + " = aten.add_.Tensor(%s" + std::to_string(i) + ", %x) : f32[4]\n";
  text += "  output %s" + std::to_string(kWrites) + "\n";
  Job job = parse(text);
  Diagnostics notes;
  REQUIRE(run_pipeline(&job, {clean_stage()}, versioned(), &notes).ok());
  const Graph& graph = job.programs[0]->graph;
  size_t functional = 0;
  for (NodeId n : graph.nodes()) functional += graph.op_name(n) == "aten.add.Tensor";
  CHECK(functional == kWrites);
}
