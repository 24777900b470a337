// Which steps keep the order of their bf16 sums.
#include "librun/value_choice.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/support/parse.h"

using namespace sg;

namespace {

bool chooses(const std::string& nodes) {
  return chooses_by_value(
      test::parse("sg 1.0\ngraph rank *\n  symbol u0 data [0, 4]\n  input %x : f32[4]\n"
                  "  input %i : i64[4]\n  input %m : bool[4]\n" +
                  nodes));
}

}  // namespace

TEST_CASE("a step chooses by value if it picks by floats or by masks") {
  CHECK(chooses("  %v, %p = aten.topk(%x, 2)\n  output %v\n"));
  CHECK(chooses("  %p = aten.argmax(%x)\n  output %p\n"));
  CHECK(chooses("  %p = aten.multinomial(%x, 1)\n  output %p\n"));
  CHECK(chooses("  %p = aten.nonzero(%m) : i64[u0, 1]\n  output %p\n"));
}

TEST_CASE("integers and thresholds are no choice by value") {
  CHECK(!chooses("  %v, %p = aten.sort(%i)\n  output %v\n"));
  CHECK(!chooses("  %y = aten.relu(%x)\n  output %y\n"));
  CHECK(!chooses("  %y = aten.gt.Scalar(%x, 0)\n  output %y\n"));
  CHECK(!chooses("  %y = aten.amax(%x)\n  output %y\n"));
}

TEST_CASE("a choice in a nested graph is one of the step") {
  const std::string call = "  %y = sg.call(graph:body, [%x]) : f32[4]\n  output %y\ngraph rank * nested body\n";
  CHECK(chooses(call + "  input %z : f32[4]\n  %v, %p = aten.sort(%z)\n  output %v\n"));
  CHECK(!chooses(call + "  input %z : f32[4]\n  %v = aten.exp(%z)\n  output %v\n"));
}
