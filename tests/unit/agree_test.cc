#include <catch2/catch.hpp>

#include "librun/comm/agree.h"
#include "librun/comm/comm_forward.h"
#include "librun/comm/comm_local.h"
#include "tests/support/collective_script.h"
#include "tests/support/parse.h"

using namespace sg;
using namespace sg::test;

namespace {

const std::string kHead = R"(sg 1.0 world 2
group @dp [0 1]
graph rank *
  symbol s0 input [1, 64]
  param %w : f32[4, 4] "w"
  input %x : f32[s0, 4] "x"
)";
const std::string kFirst = kHead + R"(
  forward m
    at "model.py":7 f
  %a = _c10d_functional.all_reduce(%w, "sum", @dp) : f32[4, 4]
    at "model.py":9 f
  %b = _c10d_functional.all_reduce(%x, "sum", @dp) : f32[s0, 4]
  output %a
  output %b
)";

// The answers of ranks 0 and 1, each with its own job and its own value of s0.
std::string agree(const std::string& first, const std::string& second, int64_t s0_first, int64_t s0_second,
                  std::string settings = "seed 0") {
  Job jobs[] = {parse(first), parse(second)};
  std::string out[2];
  run_ranks(make_local_communicators(jobs[0]), [&](Communicator& comm) {
    bool zero = comm.rank() == 0;
    int64_t s0 = zero ? s0_first : s0_second;
    SizeValues sizes = [&](StrId) { return s0 > 0 ? std::optional(s0) : std::nullopt; };
    Status s = agree_on_collectives(comm, jobs[comm.rank()], sizes, zero ? "seed 0" : settings);
    out[comm.rank()] = s.ok() ? "agreed" : s.error().message;
  });
  CHECK(out[0] == out[1]);
  return out[0];
}

// A process that read a job of its own: the others know its rank only.
class OwnGroups final : public ForwardingCommunicator {
 public:
  OwnGroups(std::unique_ptr<Communicator> inner, const Job& job)
      : ForwardingCommunicator(std::move(inner)), groups_(groups_of_rank(job, rank())) {}
  const RankGroup& group(GroupId g) const override { return groups_[g.index]; }

 private:
  std::vector<RankGroup> groups_;
};

// The answer of all ranks, each with a job from a text of its own.
std::string agree_on_own(const std::vector<std::string>& texts) {
  std::vector<Job> jobs;
  for (const std::string& text : texts) jobs.push_back(parse(text));
  std::vector<std::unique_ptr<Communicator>> comms = make_local_communicators(jobs[0]);
  for (std::unique_ptr<Communicator>& comm : comms) {
    const Job& own = jobs[comm->rank()];
    comm = std::make_unique<OwnGroups>(std::move(comm), own);
  }
  std::vector<std::string> out(texts.size());
  run_ranks(std::move(comms), [&](Communicator& comm) {
    for (int i = 0; i < 3; ++i) {  // again: all ranks have exchanged equally often
      Status s = agree_on_collectives(
          comm, jobs[comm.rank()], [](StrId) { return std::optional<int64_t>(); }, "");
      out[comm.rank()] = s.ok() ? "agreed" : s.error().message;
    }
  });
  for (const std::string& text : out) CHECK(text == out[0]);
  return out[0];
}

// A step of four ranks: an all_reduce in each of `groups`.
std::string four_ranks(const std::string& groups, const std::string& first = "sum", const std::string& second = "sum") {
  return "sg 1.0 world 4\n" + groups + R"(graph rank *
  param %w : f32[4, 4] "w"
  forward m
  %a = _c10d_functional.all_reduce(%w, ")" +
         first + R"(", @dp) : f32[4, 4]
  %b = _c10d_functional.all_reduce(%w, ")" +
         second + R"(", @tp) : f32[4, 4]
  output %a
  output %b
)";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("ranks that do the same agree, whatever they call their nodes", "[agree]") {
  CHECK(agree(kFirst, kFirst, 3, 3) == "agreed");
  std::string renamed = replaced(replaced(replaced(kFirst, "%a =", "%c ="), "output %a", "output %c"),
                                 R"("model.py":7)", R"("other.py":1)");
  CHECK(agree(kFirst, renamed, 3, 3) == "agreed");
}

TEST_CASE("a collective that differs is named on both ranks", "[agree]") {
  CHECK(agree(kFirst, replaced(kFirst, R"("sum", @dp) : f32[4, 4])", R"("avg", @dp) : f32[4, 4])"), 3, 3) ==
        "call 1 of group @dp: rank 1 calls all_reduce %a (model.py:7), rank 0 calls all_reduce %a (model.py:7): it "
        "reduces by "
        "avg here, sum there");
  std::string without = replaced(
      replaced(kFirst, R"(  %b = _c10d_functional.all_reduce(%x, "sum", @dp) : f32[s0, 4])", ""), "  output %b\n", "");
  CHECK(agree(kFirst, without, 3, 3) ==
        "call 2 of group @dp: rank 0 calls all_reduce %b (model.py:9), which rank 1 does not");
  CHECK(agree(without, kFirst, 3, 3) ==
        "call 2 of group @dp: rank 1 calls all_reduce %b (model.py:9), which rank 0 does not");
}

TEST_CASE("sizes count where both ranks know them", "[agree]") {
  CHECK(agree(kFirst, kFirst, 3, 4) ==
        "call 2 of group @dp: rank 1 calls all_reduce %b (model.py:9), rank 0 calls all_reduce %b (model.py:9): it has "
        "16 "
        "elements here, 12 there");
  CHECK(agree(kFirst, kFirst, 3, -1) == "agreed");
}

TEST_CASE("groups and settings have to be the same", "[agree]") {
  CHECK(agree(kFirst, kFirst, 3, 3, "seed 1") == "rank 1 runs with 'world 2, seed 1', rank 0 with 'world 2, seed 0'");
}

TEST_CASE("a rank that lacks a group is named on all ranks", "[agree]") {
  const std::string both = four_ranks("group @dp [0 1] [2 3]\ngroup @tp [0 2] [1 3]\n");
  const std::string whole = four_ranks("group @dp [0 1] [2 3]\ngroup @tp [0 1 2 3]\n");
  CHECK(agree_on_own({both, both, both, both}) == "agreed");
  CHECK(agree_on_own({both, both, both, whole}) == "rank 0 does not have the group tp:0 [0 1 2 3] of rank 3");
  CHECK(agree_on_own({both, whole, whole, whole}) == "rank 0 does not have the group tp:0 [0 1 2 3] of rank 1");
}

TEST_CASE("of several groups that differ the first is reported, with its lowest ranks", "[agree]") {
  const std::string groups = "group @dp [0 1] [2 3]\ngroup @tp [0 1 2 3]\n";
  const std::string same = four_ranks(groups), other = four_ranks(groups, "sum", "max");
  CHECK(
      agree_on_own({same, same, other, other}) ==
      "call 1 of group @tp: rank 2 calls all_reduce %b, rank 0 calls all_reduce %b: it reduces by max here, sum there");
  CHECK(
      agree_on_own({other, other, four_ranks(groups, "avg", "max"), same}) ==
      "call 1 of group @dp: rank 3 calls all_reduce %a, rank 2 calls all_reduce %a: it reduces by sum here, avg there");
}
