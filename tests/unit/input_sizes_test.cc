#include "libgraph/expr/input_sizes.h"

#include <catch2/catch.hpp>

#include "tests/support/parse.h"

using namespace sg;
using sg::test::parse;

namespace {

constexpr const char* kSizedGraph = R"(sg 1.0 job "t" world 1
graph rank *
  symbol s0 input [2, 64] hint 4 divisor 2
  symbol s1 input [0, inf] hint 4
  guard s0 == s1
  guard s0 != 12

  input %tokens : i64[s0, 3] "batch.tokens"
  input %twice : f32[2*s1 + 1]
  input %half : f32[s0//2]
  input %area : f32[s0*s1]

  output %tokens
)";

Result<int64_t> bound(std::initializer_list<std::string_view> texts, std::string_view symbol = "s0") {
  Job job = parse(kSizedGraph);
  std::vector<SizeBinding> bindings;
  for (std::string_view text : texts) {
    SG_ASSIGN(SizeBinding binding, parse_binding(text));
    bindings.push_back(std::move(binding));
  }
  SG_TRY(check_bindings(job, bindings));
  InputSizes sizes(*job.programs[0]);
  SG_TRY(sizes.bind(bindings));
  sizes.follow_guards();
  sizes.take_hints();
  SG_TRY(sizes.check());
  return sizes.values().value(job.pool->strings.find(symbol)).value_or(-1);
}

std::string refusal(std::initializer_list<std::string_view> texts) {
  auto result = bound(texts);
  return result.ok() ? "accepted" : result.error().message;
}

}  // namespace

TEST_CASE("a symbol or a dimension is bound, and equalities carry it on") {
  CHECK(bound({}).value() == 4);
  CHECK(bound({"s0=16"}).value() == 16);
  CHECK(bound({"s0=16"}, "s1").value() == 16);
  CHECK(bound({"tokens[0]=8"}).value() == 8);
  CHECK(bound({"%tokens[-2]=8"}).value() == 8);
  CHECK(bound({"batch.tokens[0]=8"}).value() == 8);
  CHECK(bound({"tokens[1]=3"}).value() == 4);
}

TEST_CASE("a dimension that is an expression is solved for its symbol") {
  CHECK(bound({"twice[0]=21"}).value() == 10);
  CHECK(bound({"s1=6", "area[0]=36"}).value() == 6);
  CHECK(refusal({"twice[0]=20"}) == "--bind twice[0]=20: that size is 2*s1 + 1, which cannot be solved for s1");
  CHECK(refusal({"half[0]=4"}) == "--bind half[0]=4: that size is s0//2, which cannot be solved for s0");
  CHECK(refusal({"area[0]=16"}) == "--bind area[0]=16: that size is s0*s1: bind all but one of its symbols first");
  CHECK(refusal({"tokens[1]=4"}) == "--bind tokens[1]=4: that size is 3");
}

TEST_CASE("an equality with one unknown is solved for it, where it is a line") {
  const auto follows = [](const std::string& guard, int64_t a) {
    const Job job =
        parse("sg 1.0 job \"t\" world 1\ngraph rank *\n  symbol a input [0, 100]\n  symbol b input [0, 100]\n" +
              ("  guard " + guard) + "\n  input %x : f32[a, b]\n  output %x\n");
    InputSizes sizes(*job.programs[0]);
    std::vector<SizeBinding> bindings = {parse_binding("a=" + std::to_string(a)).value()};
    REQUIRE(sizes.bind(bindings).ok());
    sizes.follow_guards();
    return sizes.values().value(job.pool->strings.find("b")).value_or(-1);
  };
  CHECK(follows("a == b", 4) == 4);
  CHECK(follows("a == 2*b", 4) == 2);
  CHECK(follows("3*b + 1 == a", 7) == 2);
  CHECK(follows("a + b == 10", 4) == 6);
  CHECK(follows("2*b == b + a", 5) == 5);
  CHECK(follows("a*b == 12", 3) == 4);
  CHECK(follows("a == 2*b", 5) == -1);   // nothing solves it
  CHECK(follows("a == b//2", 4) == -1);  // 8 and 9 do
  CHECK(follows("b % 4 == a", 1) == -1);
  CHECK(follows("b*b == a", 1) == -1);
  CHECK(follows("a*b == 12", 0) == -1);
}

TEST_CASE("what cannot be bound is named") {
  CHECK(refusal({"s0"}) == "--bind cannot read 's0'");
  CHECK(refusal({"tokens[x]=1"}) == "--bind cannot read 'tokens[x]=1'");
  CHECK(refusal({"=1"}) == "--bind cannot read '=1'");
  CHECK(refusal({"s9=1"}) == "--bind s9=1: the graph has no symbol `s9`");
  CHECK(refusal({"token[0]=1"}) == "--bind token[0]=1: the graph has no input `token`");
  CHECK(refusal({"tokens[2]=1"}) == "--bind tokens[2]=1: %tokens has 2 dimensions");
  CHECK(refusal({"s0=4", "tokens[0]=8"}) == "--bind tokens[0]=8: s0 would be 8 and is bound to 4");
  CHECK(refusal({"s0=3"}) == "the size s0 is 3, the graph takes multiples of 2");
  CHECK(refusal({"s0=128"}) == "the size s0 is 128, the graph takes 64 or less");
  CHECK(refusal({"s0=8", "s1=6"}) == "the graph needs s0 == s1; the inputs make it 8 and 6");
  CHECK(refusal({"s0=12"}) == "the graph needs s0 != 12; the inputs make both sides 12");
}
