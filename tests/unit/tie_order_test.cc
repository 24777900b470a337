// Which nodes depend on an order of equal elements that PyTorch leaves open.
#include "librun/check/tie_order.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/support/parse.h"

using namespace sg;

namespace {

// What is behind the last node.
std::string behind(const std::string& nodes) {
  const Job job = test::parse("sg 1.0\ngraph rank *\n  input %x : f32[4]\n" + nodes + "  output %y\n");
  const Graph& graph = job.programs[0]->graph;
  const NodeId found = tie_order_behind(graph, graph.last());
  return found ? std::string(graph.label(found)) : "";
}

}  // namespace

TEST_CASE("places that an unstable sort gives are behind what is computed from them") {
  CHECK(behind("  %v, %p = aten.sort(%x)\n  %y = aten.neg(%p)\n") == "v");
  CHECK(behind("  %v, %p = aten.topk(%x, 2)\n  %z = aten.neg(%p)\n  %y = aten.add.Tensor(%z, 1)\n") == "v");
  CHECK(behind("  %p = aten.argsort(%x)\n  %q = aten.argsort(%p)\n  %y = aten.neg(%q)\n") == "q");
  CHECK(behind("  %v, %p = aten.sort.stable(%x, stable=false)\n  %y = aten.neg(%p)\n") == "v");
  CHECK(behind("  %v, %p = aten.sort(%x)\n  %y = aten.mul.Tensor(%v, %p)\n") == "v");
}

TEST_CASE("stable sorts have one order, and elements are the same in any") {
  CHECK(behind("  %v, %p = aten.sort.stable(%x, stable=true)\n  %y = aten.neg(%p)\n") == "");
  CHECK(behind("  %p = aten.argsort.stable(%x, stable=true)\n  %y = aten.neg(%p)\n") == "");
  CHECK(behind("  %v, %p = aten.sort(%x)\n  %y = aten.neg(%v)\n") == "");
  CHECK(behind("  %y = aten.neg(%x)\n") == "");
}

TEST_CASE("the way out is one that the op has") {
  const Job job = test::parse(
      "sg 1.0\ngraph rank *\n  input %x : f32[4]\n  %v, %p = aten.topk(%x, 2)\n  %q = aten.argsort(%x)\n"
      "  %a = aten.neg(%p)\n  %b = aten.neg(%q)\n  output %a\n  output %b\n");
  const Graph& graph = job.programs[0]->graph;
  const NodeId b = graph.last(), a = graph.previous(b);
  CHECK(tie_order_hint(graph, a).ends_with("capture with sort(..., stable=True) in its place"));
  CHECK(tie_order_hint(graph, b).ends_with("capture with stable=True"));
}
