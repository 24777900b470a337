// Which products of bf16 keep the order of their sums.
#include "librun/check/value_choice.h"

#include <catch2/catch.hpp>
#include <string>
#include <string_view>

#include "tests/support/parse.h"

using namespace sg;

namespace {

SumOrder order_of(const std::string& nodes) {
  return sum_order_of(
      test::parse("sg 1.0\ngraph rank *\n  symbol u0 data [0, 4]\n  input %x : bf16[4, 4]\n  input %i : i64[4]\n"
                  "  input %m : bool[4]\n" +
                  nodes));
}

}  // namespace

TEST_CASE("a step that picks by floats or by masks keeps the order of sums in its forward") {
  CHECK(order_of("  %v, %p = aten.topk(%x, 2)\n  output %v\n") == SumOrder::forward);
  CHECK(order_of("  %p = aten.argmax(%x)\n  output %p\n") == SumOrder::forward);
  CHECK(order_of("  %p = aten.multinomial(%x, 1)\n  output %p\n") == SumOrder::forward);
  CHECK(order_of("  %p = aten.nonzero(%m) : i64[u0, 1]\n  output %p\n") == SumOrder::forward);
}

TEST_CASE("integers and thresholds are no choice by value") {
  CHECK(order_of("  %v, %p = aten.sort(%i)\n  output %v\n") == SumOrder::free);
  CHECK(order_of("  %y = aten.relu(%x)\n  output %y\n") == SumOrder::free);
  CHECK(order_of("  %y = aten.gt.Scalar(%x, 0)\n  output %y\n") == SumOrder::free);
  CHECK(order_of("  %y = aten.amax(%x)\n  output %y\n") == SumOrder::free);
}

TEST_CASE("a choice in a nested graph is one of the step") {
  const std::string call =
      "  %y = sg.call(graph:body, [%x]) : bf16[4, 4]\n  output %y\ngraph rank * nested body\n  input %z : bf16[4, 4]\n";
  CHECK(order_of(call + "  %v, %p = aten.sort(%z)\n  output %v\n") == SumOrder::forward);
  CHECK(order_of(call + "  %v = aten.exp(%z)\n  output %v\n") == SumOrder::free);
}

TEST_CASE("a choice that depends on products of the backward keeps the order of all") {
  const std::string product = "  backward -\n    %g = aten.mm(%x, %x)\n    %e = aten.exp(%g) : bf16[4, 4]\n";
  CHECK(order_of("  %v, %p = aten.topk(%x, 2)\n" + product + "  output %e\n  output %v\n") == SumOrder::forward);
  CHECK(order_of(product + "    %v, %p = aten.topk(%e, 2)\n  output %v\n") == SumOrder::all);
  CHECK(order_of(product +
                 "    %y = sg.call(graph:body, [%e]) : bf16[4, 4]\n  output %y\n"
                 "graph rank * nested body\n  input %z : bf16[4, 4]\n  %v, %p = aten.sort(%z)\n  output %v\n") ==
        SumOrder::all);
  CHECK(
      order_of(
          "  backward -\n    %g = sg.call(graph:body, [%x]) : bf16[4, 4]\n"
          "    %v, %p = aten.topk(%g, 2)\n  output %v\n"
          "graph rank * nested body\n  input %z : bf16[4, 4]\n  backward -\n    %w = aten.mm(%z, %z)\n  output %w\n") ==
      SumOrder::all);
}

TEST_CASE("a choice sees what was written to its operand's memory under another name") {
  const std::string product = "  backward -\n    %g = aten.mm(%x, %x)\n    %c = aten.clone(%x) : bf16[4, 4]\n";
  const auto choice_after = [&](const std::string& write, const char* chosen) {
    return order_of(product + write + "    %v, %p = aten.topk(" + chosen + ", 2)\n  output %v\n");
  };
  const std::string through_view = "    %d = aten.detach(%c)\n    %w = aten.add_.Tensor(%d, %g)\n";
  CHECK(choice_after(through_view, "%c") == SumOrder::all);
  CHECK(choice_after(through_view, "%x") == SumOrder::forward);
  CHECK(choice_after("    %l = aten.select.int(%c, 0, 1)\n    %r = aten.select.int(%g, 0, 1)\n"
                     "    %w = aten.copy_(%l, %r)\n",
                     "%c") == SumOrder::all);
  CHECK(order_of(product + "    %v, %p = aten.topk(%c, 2)\n" + through_view + "  output %v\n  output %c\n") ==
        SumOrder::forward);
}

TEST_CASE("a choice that nothing uses is none") {
  CHECK(order_of("  %p = aten.argmax(%x)\n  %y = aten.exp(%x)\n  output %y\n") == SumOrder::free);
  CHECK(order_of("  %p = aten.argmax(%x)\n  %q = aten.add.Tensor(%p, 1)\n  %y = aten.exp(%x)\n  output %y\n") ==
        SumOrder::free);
  CHECK(order_of("  %p = aten.argmax(%x)\n  %f = aten.zeros_like(%x)\n  %w = aten.fill_.Tensor(%f, %p)\n"
                 "  %y = aten.exp(%x)\n  output %y\n") == SumOrder::free);
  CHECK(order_of("  %p = aten.argmax(%x)\n  %f = aten.zeros_like(%x)\n  %w = aten.fill_.Tensor(%f, %p)\n"
                 "  output %f\n") == SumOrder::forward);
  const std::string call =
      "  %y = sg.call(graph:body, [%x]) : bf16[4, 4]\n  output %y\ngraph rank * nested body\n  input %z : bf16[4, 4]\n";
  CHECK(order_of(call + "  %v, %p = aten.sort(%z)\n  %e = aten.exp(%z)\n  output %e\n") == SumOrder::free);
}

TEST_CASE("a choice sees what another rank sends of its backward") {
  const auto order_where_rank_1_sends = [](const std::string& sent) {
    return sum_order_of(test::parse(R"(sg 1.0 world 2
group @pair [0 1] "0"
graph rank 0
  input %x : bf16[4, 4]
  %none = aten.empty.memory_format([0], dtype=bf16, device=cpu) : bf16[0]
  %flight = _c10d_functional.all_to_all_single(%none, [0, 16], [0, 0], @pair) : bf16[16]
  %got = _c10d_functional.wait_tensor(%flight) : bf16[16]
  %v, %p = aten.topk(%got, 2)
  output %v
graph rank 1
  input %x : bf16[4, 4]
  backward -
    %g = aten.mm(%x, %x)
    %flat = aten.view()" + sent + R"(, [16])
    %flight = _c10d_functional.all_to_all_single(%flat, [0, 0], [16, 0], @pair) : bf16[0]
    %done = _c10d_functional.wait_tensor(%flight)
  output %done
  output %g
)"));
  };
  CHECK(order_where_rank_1_sends("%g") == SumOrder::all);
  CHECK(order_where_rank_1_sends("%x") == SumOrder::forward);
}

TEST_CASE("the scores of attention's backward keep the order of its forward") {
  const Job job = test::parse(R"(sg 1.0
graph rank *
  input %x : bf16[1, 1, 4, 32]
  input %w : bf16[32, 32]
  forward -
    %o, %l = aten._scaled_dot_product_flash_attention_for_cpu(%x, %x, %x) : bf16[1, 1, 4, 32], f32[1, 1, 4]
    %v, %p = aten.topk(%o, 2)
  backward -
    %q, %k, %u = aten._scaled_dot_product_flash_attention_for_cpu_backward(%o, %x, %x, %x, %o, %l, 0.0, false)
    %g = aten.matmul(%q, %w)
  output %g
  output %v
)");
  const Graph& graph = job.programs[0]->graph;
  REQUIRE(sum_order_of(job) == SumOrder::forward);
  CHECK(keeps_order(SumOrder::forward, graph, graph.find_node("q")));
  CHECK(!keeps_order(SumOrder::forward, graph, graph.find_node("g")));
  CHECK(!keeps_order(SumOrder::free, graph, graph.find_node("q")));
}

TEST_CASE("recomputed products keep the order of those they repeat") {
  const Job job = test::parse(R"(sg 1.0
graph rank *
  input %x : bf16[4, 4]
  forward -
    %y = aten.mm(%x, %x) : bf16[4, 4]
    %v, %p = aten.topk(%y, 2)
  backward -
    %y_again = aten.mm(%x, %x) : bf16[4, 4] remat_of y
    %g = aten.mm(%y_again, %x)
  output %g
  output %v
)");
  const Graph& graph = job.programs[0]->graph;
  const auto keeps = [&](std::string_view name) {
    return keeps_order(sum_order_of(job), graph, graph.find_node(name));
  };
  CHECK(keeps("y"));
  CHECK(keeps("y_again"));
  CHECK(!keeps("g"));
}
