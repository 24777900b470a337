// Rank sets: split and joined again, over random jobs; and what cannot be joined.
#include <catch2/catch.hpp>

#include "libgraph/diff/program_compare.h"
#include "libgraph/edit/merge.h"
#include "libgraph/edit/translate.h"
#include "tests/support/random_job.h"

using namespace sg;

namespace {

Result<Job> explode_and_merge(const Job& job, Diagnostics* notes) {
  std::vector<Job> parts;
  std::vector<std::string> files;
  for (uint32_t rank : ranks_held(job)) {
    parts.push_back(job_of_rank(job, rank));
    files.push_back("rank" + std::to_string(rank) + ".sg");
  }
  return merge_ranks(std::move(parts), files, notes);
}

// Translates both programs into one pool, where they can be compared.
std::optional<std::string> difference(const Job& a, const Program& x, const Job& b, const Program& y) {
  Job both;
  std::vector<GroupId> same_groups;
  for (uint32_t i = 0; i < a.groups.size(); ++i) same_groups.push_back(GroupId(i));
  Program& left = both.add_program();
  Program& right = both.add_program();
  Translator(*a.pool, both.pool.get(), same_groups).program(x, &left);
  Translator(*b.pool, both.pool.get(), same_groups).program(y, &right);
  return first_difference(left, right);
}

}  // namespace

TEST_CASE("a job taken apart by rank and merged is the job again") {
  test::RandomJobOptions options;
  options.world = 4;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    INFO("seed " << seed);
    Job job = test::random_job(seed, options);
    Diagnostics notes;
    Result<Job> merged = explode_and_merge(job, &notes);
    REQUIRE(merged.ok());
    REQUIRE(merged->programs.size() <= job.programs.size());
    CHECK(ranks_held(*merged) == ranks_held(job));
    for (uint32_t rank : ranks_held(job)) {
      std::optional<std::string> d = difference(job, *job.program_of(rank), *merged, *merged->program_of(rank));
      INFO("rank " << rank << ": " << d.value_or(""));
      CHECK(!d);
    }
    CHECK(merged->groups.size() == job.groups.size());
  }
}

TEST_CASE("programs that differ in one argument stay apart, and the note says where") {
  Job job;
  job.world = 2;
  ProgramSharer sharer(&job);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Program& program = job.add_program();
    program.ranks = {rank};
    NodeSpec spec;
    spec.op = job.pool->op("aten.ge.Scalar");
    TypeId type = job.pool->tensor(DType::f32, {job.pool->exprs.constant(4)}, job.pool->str("cpu"));
    spec.args = {Arg::value(program.graph.add_input("x", type, {})), Arg::integer(rank * 128)};
    spec.result_types = {type};
    program.graph.append(spec);
    sharer.share_last();
  }
  Diagnostics notes;
  sharer.finish(&notes);
  REQUIRE(job.programs.size() == 2);
  REQUIRE(notes.list().size() == 1);
  CHECK(notes.list()[0].message.find("node %ge: argument 1: 0 against 128") != std::string::npos);
}

TEST_CASE("files that are no parts of one job are refused with the file") {
  test::RandomJobOptions options;
  options.world = 4;
  Job job = test::random_job(7, options);
  auto merged = [](Job a, Job b) {
    std::vector<Job> jobs;
    jobs.push_back(std::move(a));
    jobs.push_back(std::move(b));
    return merge_ranks(std::move(jobs), {"rank0.sg", "rank1.sg"});
  };
  SECTION("a rank twice") {
    Result<Job> result = merged(job_of_rank(job, 0), job_of_rank(job, 0));
    REQUIRE(!result.ok());
    CHECK(result.error().where.file == "rank1.sg");
    CHECK(result.error().message.find("rank 0 comes twice") != std::string::npos);
  }
  SECTION("another world") {
    Job other = job_of_rank(job, 1);
    other.world = 8;
    CHECK(!merged(job_of_rank(job, 0), std::move(other)).ok());
  }
  SECTION("other groups") {
    Job other = job_of_rank(job, 1);
    other.groups.push_back(Group{other.pool->str("extra"), 0, 0, {}});
    CHECK(!merged(job_of_rank(job, 0), std::move(other)).ok());
  }
}
