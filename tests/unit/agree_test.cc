#include <catch2/catch.hpp>

#include "librun/agree.h"
#include "librun/comm_local.h"
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
