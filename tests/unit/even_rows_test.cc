#include "librun/execute/even_rows.h"

#include <catch2/catch.hpp>

#include "tests/support/parse.h"

using namespace sg;
using sg::test::parse_programs;

namespace {

// A head of V classes, with one more node and one more output.
std::string head(const std::string& classes, const std::string& more, const std::string& last) {
  std::string out = R"(graph rank *
  input %h : bf16[9, 32]
  input %e : bf16[V, 32]
  input %t : i64[9]
  %w = aten.t(%e)                                              : bf16[32, V] stride [1, 32]
  %x = aten.mm(%h, %w)                                         : bf16[9, V]
  %loss, %total, %sums = sg.cross_entropy(%x, %t, none, 1, -100) : f32[], f32[], f64[9]
  %dx = sg.cross_entropy_backward(%x, %sums, %loss, %t, none, 1, -100, %total, dtype=bf16) : bf16[9, V]
  %dh = aten.mm(%dx, %e)                                       : bf16[9, 32]
  %dt = aten.t(%dx)                                            : bf16[V, 9] stride [1, V]
  %de = aten.mm(%dt, %h)                                       : bf16[V, 32]
)" + more + "  output %loss\n  output %dh\n  output %de\n  output %" +
                    last + "\n";
  for (size_t at; (at = out.find('V')) != out.npos;) out.replace(at, 1, classes);
  return out;
}

int64_t step(const Job& job, const char* name, size_t axis) {
  const Graph& graph = job.programs[0]->graph;
  return *graph.pool().exprs.constant_value(graph.type(graph.find_value(name)).stride[axis]);
}

}  // namespace

TEST_CASE("rows of a vocabulary begin at multiples of 128 bytes") {
  const Job job = parse_programs(head("50257", "", "dh"));
  const auto even = with_even_rows(job);
  REQUIRE(even);
  CHECK(step(*even, "x", 0) == 50304);
  CHECK(step(*even, "dx", 0) == 50304);
  CHECK(step(*even, "dt", 0) == 1);
  CHECK(step(*even, "dt", 1) == 50304);
  CHECK(step(*even, "de", 0) == 32);
  CHECK(step(job, "x", 0) == 50257);  // the job itself is unchanged
}

TEST_CASE("rows that others see stay where they are") {
  CHECK(!with_even_rows(parse_programs(head("50304", "", "dh"))));  // already even
  CHECK(!with_even_rows(parse_programs(head("1001", "", "dh"))));   // short
  const auto read = with_even_rows(parse_programs(head("50257", "  %other = aten.neg(%x) : bf16[9, V]\n", "other")));
  REQUIRE(read);  // only the gradient
  CHECK(step(*read, "x", 0) == 50257);
  CHECK(step(*read, "dx", 0) == 50304);
  const std::string turned = "  %other = aten.neg(%dt) : bf16[V, 9] stride [1, V]\n";
  CHECK(!with_even_rows(parse_programs(head("50257", turned, "x"))));  // an output, and a transpose with other readers
}
