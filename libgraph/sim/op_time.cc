#include "libgraph/sim/op_time.h"

#include <algorithm>
#include <cmath>

#include "libgraph/sim/op_kind.h"

namespace sg {
namespace {

struct Tile {
  double rows, columns;
  double efficiency;  // relative to the largest tile
};
constexpr Tile kTiles[] = {{256, 128, 1.0}, {128, 128, 0.95}, {64, 64, 0.6}};

// Utilization while `batch` products of rows x columns run: 1 if all waves are full and tiles are most efficient.
double filling(const Machine& machine, double batch, double rows, double columns) {
  double best = 0, useful = batch * rows * columns;
  if (useful <= 0 || machine.device.multiprocessors <= 0) return 1;
  for (const Tile& t : kTiles) {
    double tiles = batch * std::ceil(rows / t.rows) * std::ceil(columns / t.columns);
    double waves = std::ceil(tiles / machine.device.multiprocessors);
    best = std::max(best, t.efficiency * useful / (waves * machine.device.multiprocessors * t.rows * t.columns));
  }
  return best;
}

struct Product {
  double batch = 1, rows = 0, columns = 0;
};

// A product's result as a batch of matrices. For a grouped one, groups get equal shares of the rows (of a split inner
// axis: no share).
Product product_of(const CostCall& call) {
  const Type* out = call.result(0);
  if (!out || out->shape.size() < 2) return {1, call.elements(out), 1};
  Product p;
  p.columns = call.dim(out, -1);
  p.rows = call.dim(out, -2);
  p.batch = p.rows * p.columns > 0 ? call.elements(out) / (p.rows * p.columns) : 0;
  const Type* right = call.op.cost == cost::grouped_mm ? call.tensor("mat2") : nullptr;
  if (right && right->shape.size() == 3 && out->shape.size() == 2) {
    p.batch = std::max(1.0, call.dim(right, 0));
    p.rows /= p.batch;
  }
  return p;
}

// The dtype of a contraction's multiplications: that of its first tensor argument.
DType product_dtype(const CostCall& call) {
  for (const Arg& a : call.node.args)
    if (a.is(ArgKind::value) && call.graph.type(a.as_value()).kind == TypeKind::tensor)
      return call.graph.type(a.as_value()).dtype;
  return DType::f32;
}

// The fraction of peak flops that a contraction reaches.
double contraction_efficiency(const Machine& machine, const CostCall& call) {
  Machine::Efficiency e = machine.efficiency;
  OpKind kind = op_kind(&call.op);
  if (kind != OpKind::matmul && kind != OpKind::grouped_matmul) return efficiency_of(e, kind);
  Product p = product_of(call);
  return efficiency_of(e, kind) * filling(machine, p.batch, p.rows, p.columns);
}

}  // namespace

double compute_time_us(const Machine& machine, const Graph& graph, NodeId n, const NodeCost& cost,
                       const SizeValues& values) {
  if (cost.flops <= 0 && cost.bytes <= 0) return 0;
  const OpInfo* op = graph.op_info(n);
  double share = op_kind(op) == OpKind::irregular ? machine.efficiency.irregular : machine.efficiency.memory;
  double memory_us = cost.bytes / (machine.device.memory_gbps * share) * 1e-3;
  double flops_us = cost.flops / machine.device.vector_tflops * 1e-6;
  if (op && op->has(kContraction))
    flops_us = product_time_at_peak_us(machine, graph, n, cost, values) /
               contraction_efficiency(machine, CostCall{graph, graph.node(n), *op, values});
  return std::max({machine.device.kernel_us, memory_us, flops_us});
}

double product_time_at_peak_us(const Machine& machine, const Graph& graph, NodeId n, const NodeCost& cost,
                               const SizeValues& values) {
  const OpInfo* op = graph.op_info(n);
  if (!op || !op->has(kContraction)) return 0;
  return cost.flops / machine.matmul_tflops(product_dtype(CostCall{graph, graph.node(n), *op, values})) * 1e-6;
}

}  // namespace sg
