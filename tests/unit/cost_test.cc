#include "libgraph/facts/cost.h"

#include <catch2/catch.hpp>

#include "tests/support/parse.h"

using namespace sg;
using sg::test::parse;

namespace {

const SizeValues kNoSizes = [](StrId) -> std::optional<int64_t> { return std::nullopt; };

}  // namespace

TEST_CASE("cost rules count as cost.h says") {
  struct Case {
    const char* line;
    double flops, bytes;
  };
  const Case cases[] = {
      {"%r = aten.mm(%a, %b) : f32[4, 16]", 2 * 4 * 8 * 16, 4 * (32 + 128 + 64)},
      {"%r = aten.addmm(%bias, %a, %b) : f32[4, 16]", 2 * 4 * 8 * 16, 4 * (16 + 32 + 128 + 64)},
      {"%r = aten.bmm(%q3, %k3) : f32[2, 4, 4]", 2 * 2 * 4 * 8 * 4, 4 * (64 + 64 + 32)},
      {"%r = aten._grouped_mm(%a, %g3, offs=%offs) : f32[4, 16]", 2 * 4 * 8 * 16, 4 * (32 + 256 + 2 + 64)},
      {"%r = aten._grouped_mm(%a2, %b2, offs=%offs) : f32[2, 8, 16]", 2 * 8 * 5 * 16, 4 * (40 + 80 + 2 + 256)},
      {"%r = aten._scaled_mm(%e, %f, %one, %one) : f8e4m3fn[4, 16]", 2 * 4 * 8 * 16, 32 + 128 + 4 + 4 + 64},
      {"%r = aten.neg(%a) : f32[4, 8]", 32, 4 * 64},
      {"%r = aten.t(%a) : f32[8, 4] stride [1, 8]", 0, 0},
      {"%r = aten.sum(%a) : f32[]", 32, 4 * 33},
      {"%r = aten._softmax(%a, 1, false) : f32[4, 8]", 160, 4 * 64},
      {"%r = aten.empty.memory_format([9]) : f32[9]", 0, 0},
      {"%r = aten.ones([9]) : f32[9]", 0, 36},
      {"%r = aten.embedding(%b, %rows) : f32[3, 16]", 0, 24 + 2 * 4 * 48},
      {"%r = aten.convolution(%img, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : f32[1, 5, 4, 4]",
       2 * 80 * 3 * 9, 4 * (108 + 135 + 80)},
      {"%r = aten.scaled_dot_product_attention(%q4, %k4, %v4) : f32[1, 2, 3, 6]", 2 * 2 * 3 * 5 * (4 + 6),
       4 * (24 + 40 + 60 + 36)},
      {"%r, %i = aten.linalg_cholesky_ex(%s) : f32[2, 6, 6] stride [36, 1, 6], i32[2]", 2 * 72, 4 * (72 + 72 + 2)},
      {"%r, %i = aten.linalg_inv_ex(%s) : f32[2, 6, 6] stride [36, 1, 6], i32[2]", 2 * 432, 4 * (72 + 72 + 2)},
      {"%r, %l, %p, %i = aten._linalg_solve_ex(%s, %x) : f32[2, 6, 5] stride [30, 1, 6], f32[2, 6, 6] stride [36, 1, "
       "6], "
       "i32[2, 6], i32[2]",
       2 * 144 + 2 * 2 * 36 * 5, 4 * (72 + 60 + 60 + 72 + 12 + 2)},
      {"%r, %l = aten.linalg_qr(%x) : f32[2, 6, 5] stride [30, 1, 6], f32[2, 5, 5] stride [25, 1, 5]",
       2 * 4 * 25 * (6 - 5. / 3), 4 * (60 + 60 + 50)},
  };
  for (const Case& c : cases) {
    INFO(c.line);
    Job job = parse(std::string(R"(sg 1.0 job "t" world 1
device cpu

graph rank *
  input %a : f32[4, 8] "a"
  input %b : f32[8, 16] "b"
  input %a2 : f32[8, 5] "a2"
  input %b2 : f32[5, 16] "b2"
  input %bias : f32[16] "bias"
  input %q3 : f32[2, 4, 8] "q3"
  input %k3 : f32[2, 8, 4] "k3"
  input %g3 : f32[2, 8, 16] "g3"
  input %offs : i32[2] "offs"
  input %rows : i64[3] "rows"
  input %img : f32[1, 3, 6, 6] "img"
  input %w : f32[5, 3, 3, 3] "w"
  input %q4 : f32[1, 2, 3, 4] "q4"
  input %k4 : f32[1, 2, 5, 4] "k4"
  input %v4 : f32[1, 2, 5, 6] "v4"
  input %e : f8e4m3fn[4, 8] "e"
  input %f : f8e4m3fn[8, 16] "f"
  input %one : f32[] "one"
  input %s : f32[2, 6, 6] "s"
  input %x : f32[2, 6, 5] "x"

  forward -
    )") + c.line + "\n\n  output %r\n");
    const Program& program = *job.programs[0];
    NodeCost cost = CostModel(program, kNoSizes).node(program.graph, program.graph.first());
    CHECK(cost.flops == c.flops);
    CHECK(cost.bytes == c.bytes);
    CHECK(cost.complete);
  }
}

TEST_CASE("what is computed from a value without a type has no known cost") {
  const Job job = parse(R"(sg 1.0
graph rank *
  input %x : f32[4, 4]
  forward -
    %y = my.op(%x)
    %z = aten.mm(%y, %x) : f32[4, 4]
    %t = aten.t(%y)
    %u = aten.neg(%z)    : f32[4, 4]
  output %u
  output %t
)");
  CostModel costs(*job.programs[0], kNoSizes);
  const Graph& graph = job.programs[0]->graph;
  for (const auto& [name, complete] : {std::pair("y", false), {"z", false}, {"t", true}, {"u", true}})
    CHECK(costs.node(graph, graph.find_node(name)).complete == complete);
}

TEST_CASE("what a collective hands in and what leaves the rank") {
  Job job = parse(R"(sg 1.0 job "t" world 4
group @g [0 1 2 3]
device cpu

graph rank *
  input %x : bf16[64] "x"

  forward -
    %a = _c10d_functional.all_gather_into_tensor(%x, 4, @g)            : bf16[256]
    %b = _c10d_functional.reduce_scatter_tensor(%x, "sum", 4, @g)      : bf16[16]
    %c = _c10d_functional.all_reduce(%x, "sum", @g)                    : bf16[64]
    %d = _c10d_functional.all_to_all_single(%x, [16, 16, 16, 16], [16, 16, 16, 16], @g) : bf16[64]

  output %a
)");
  const Program& program = *job.programs[0];
  struct Expected {
    const char* kind;
    double wire;
  };
  const Expected expected[] = {{"all_gather", 384}, {"reduce_scatter", 96}, {"all_reduce", 192}, {"all_to_all", 96}};
  size_t i = 0;
  for (NodeId n : program.graph.nodes()) {
    Communication c = communication_of(job, program, program.graph, n, kNoSizes);
    CHECK(c.kind == expected[i].kind);
    CHECK(c.payload_bytes == 128);
    CHECK(c.wire_bytes == expected[i].wire);
    CHECK(c.group == GroupId(0));
    ++i;
  }
}

TEST_CASE("of an exchange whose parts are numbers, all but the rank's own leaves it") {
  Job job = parse(R"(sg 1.0 job "t" world 4
group @g [0 2] [1 3]
device cpu

graph rank 0 1
  input %x : f32[10] "x"

  %ring = _c10d_functional.all_to_all_single(%x, [0, 10], [0, 10], @g)  : f32[10]
  %home = _c10d_functional.all_to_all_single(%x, [10, 0], [10, 0], @g)  : f32[10]
  %some = _c10d_functional.all_to_all_single(%x, [7, 3], [7, 3], @g)    : f32[10]

  output %ring

graph rank 2 3
  input %x : f32[10] "x"

  %ring = _c10d_functional.all_to_all_single(%x, [10, 0], [10, 0], @g)  : f32[10]
  %home = _c10d_functional.all_to_all_single(%x, [0, 10], [0, 10], @g)  : f32[10]
  %some = _c10d_functional.all_to_all_single(%x, [3, 7], [3, 7], @g)    : f32[10]

  output %ring
)");
  for (const auto& program : job.programs) {
    std::vector<double> wire;
    for (NodeId n : program->graph.nodes())
      wire.push_back(communication_of(job, *program, program->graph, n, kNoSizes).wire_bytes);
    CHECK(wire == std::vector<double>{40, 0, 12});
  }
}

TEST_CASE("what a rank receives in an exchange is not what it sends") {
  Job job = parse(R"(sg 1.0 job "t" world 2
group @g [0 1]
device cpu

graph rank 0
  input %x : f32[10] "x"

  %hot = _c10d_functional.all_to_all_single(%x, [4, 10], [10, 0], @g)  : f32[14]

  output %hot

graph rank 1
  input %x : f32[10] "x"

  %none = _c10d_functional.all_to_all_single(%x, [0, 0], [10, 0], @g)  : f32[0]

  output %none
)");
  std::vector<double> sent, received;
  for (const auto& program : job.programs) {
    const Communication c = communication_of(job, *program, program->graph, program->graph.first(), kNoSizes);
    sent.push_back(c.wire_bytes), received.push_back(c.received_bytes);
  }
  CHECK(sent == std::vector<double>{0, 40});
  CHECK(received == std::vector<double>{40, 0});
}

TEST_CASE("of an exchange whose parts are known sizes, all but the rank's own leaves it") {
  Job job = parse(R"(sg 1.0 job "t" world 2
group @g [0 1]
device cpu

graph rank 0
  symbol n input [1, 100]
  input %x : f32[2*n] "x"

  %most = aten.sym_numel(%x)                                                      : int 2*n
  %ring = _c10d_functional.all_to_all_single(%x, [0, %most], [0, %most], @g)  : f32[2*n]

  output %ring

graph rank 1
  symbol n input [1, 100]
  input %x : f32[2*n] "x"

  %most = aten.sym_numel(%x)                                                      : int 2*n
  %ring = _c10d_functional.all_to_all_single(%x, [0, %most], [0, %most], @g)  : f32[2*n]

  output %ring
)");
  const SizeValues five = [](StrId) { return std::optional<int64_t>(5); };
  std::vector<double> wire;
  for (const auto& program : job.programs)
    for (NodeId n : program->graph.nodes())
      if (program->graph.op_info(n)->name.starts_with("_c10d"))
        wire.push_back(communication_of(job, *program, program->graph, n, five).wire_bytes);
  CHECK(wire == std::vector<double>{40, 0});
}
