// The cost rules of op.def, family by family; cost.h says what each counts.
#include <algorithm>
#include <cmath>

#include "libgraph/facts/cost.h"

namespace sg::cost {
namespace {

OpCost with_bytes(const CostCall& call, double flops) { return {flops, call.argument_bytes() + call.result_bytes()}; }

const Type* first_of(const CostCall& call, std::initializer_list<std::string_view> names) {
  for (std::string_view name : names)
    if (const Type* t = call.tensor(name)) return t;
  return nullptr;
}

// Bytes of the arguments that select elements.
double index_bytes(const CostCall& call) {
  double total = 0;
  for (std::string_view name : {"index", "indices", "mask"})
    if (const Arg* a = call.argument(name))
      a->walk([&](const Arg& item) {
        if (item.is(ArgKind::value)) total += call.bytes(&call.graph.type(item.as_value()));
      });
  return total;
}

// A boolean argument of the node, or the schema's default.
bool boolean(const CostCall& call, std::string_view name, bool otherwise) {
  const Arg* a = call.argument(name);
  return a && a->is(ArgKind::boolean) ? a->as_bool() : otherwise;
}

// The size of the axis that a product sums over: the last axis of the left side.
double inner_size(const CostCall& call) {
  return call.dim(first_of(call, {"mat1", "batch1", "mat", "input", "self"}), -1);
}

}  // namespace

OpCost free(const CostCall&) { return {}; }
OpCost fill(const CostCall& call) { return {0, call.result_bytes()}; }

OpCost gather(const CostCall& call) { return {0, index_bytes(call) + 2 * call.result_bytes()}; }

// In place, only the scattered elements move; the functional form copies all of self first.
OpCost scatter(const CostCall& call) {
  double moved = 0;
  for (std::string_view name : {"values", "src", "source", "value"}) moved += call.bytes(call.tensor(name));
  double copied = call.op.writes() ? 0 : call.bytes(call.tensor("self")) + call.result_bytes();
  return {0, index_bytes(call) + 2 * moved + copied};
}

OpCost scan(const CostCall& call) { return with_bytes(call, call.elements(call.first_tensor())); }

OpCost sort(const CostCall& call) {
  double n = call.elements(call.first_tensor());
  return with_bytes(call, n > 1 ? n * std::ceil(std::log2(n)) : 0);
}

OpCost fourier(const CostCall& call) {
  double n = std::max(call.elements(call.first_tensor()), call.elements(call.result(0)));
  double length = 1;  // elements of one transform: the product of the transformed axes
  const Arg* dims = call.argument("dim");
  if (dims && dims->is(ArgKind::list))
    for (const Arg& d : dims->items())
      length *= d.is(ArgKind::integer) ? call.dim(call.result(0), static_cast<int>(d.as_int())) : 1;
  return with_bytes(call, length > 1 ? 5 * n * std::log2(length) : 0);
}

namespace {

// The matrices to decompose: how many, and their sizes.
struct MatrixSizes {
  double count, rows, columns;
  double smaller() const { return std::min(rows, columns); }
  double larger() const { return std::max(rows, columns); }
  double eliminated() const { return smaller() * smaller() * (larger() - smaller() / 3); }
};

MatrixSizes decomposed(const CostCall& call) {
  const Type* t = first_of(call, {"A", "self", "input", "LU"});
  const double rows = call.dim(t, -2), columns = call.dim(t, -1);
  return {rows * columns > 0 ? call.elements(t) / (rows * columns) : 0, rows, columns};
}

// Flops of one triangular solve: the elements of the solution times the size of the matrix.
double solved(const CostCall& call) {
  const Type* matrix = call.tensor("self");
  for (std::string_view name : {"LU", "input2", "A"})
    if (call.op.param_index(name) >= 0) matrix = call.tensor(name);
  return call.elements(call.result(0)) * call.dim(matrix, -1);
}

}  // namespace

OpCost cholesky(const CostCall& call) {
  const MatrixSizes m = decomposed(call);
  return with_bytes(call, m.count * m.rows * m.rows * m.rows / 3);
}
OpCost lu(const CostCall& call) { return with_bytes(call, decomposed(call).count * decomposed(call).eliminated()); }
OpCost inverse(const CostCall& call) {
  const MatrixSizes m = decomposed(call);
  return with_bytes(call, 2 * m.count * m.rows * m.rows * m.rows);
}
OpCost solve_once(const CostCall& call) { return with_bytes(call, solved(call)); }
OpCost solve_twice(const CostCall& call) { return with_bytes(call, 2 * solved(call)); }
OpCost solve(const CostCall& call) { return with_bytes(call, lu(call).flops + 2 * solved(call)); }
OpCost qr(const CostCall& call) { return with_bytes(call, 4 * decomposed(call).count * decomposed(call).eliminated()); }
OpCost reflect(const CostCall& call) {
  return with_bytes(call, 4 * call.elements(call.result(0)) * call.dim(call.tensor("input2"), -1));
}
OpCost eigen(const CostCall& call) {
  const MatrixSizes m = decomposed(call);
  return with_bytes(call, (boolean(call, "compute_v", true) ? 9 : 4. / 3) * m.count * m.rows * m.rows * m.rows);
}
OpCost svd(const CostCall& call) {
  const MatrixSizes m = decomposed(call);
  const double k = m.smaller();
  const double with_vectors = 8 * k * k * m.larger() + 12 * k * k * k;
  return with_bytes(call, m.count * (boolean(call, "compute_uv", true) ? with_vectors : 4 * m.eliminated()));
}
OpCost matrix_exp(const CostCall& call) {
  const MatrixSizes m = decomposed(call);
  return with_bytes(call, 15 * m.count * m.rows * m.rows * m.rows);
}

OpCost softmax(const CostCall& call) { return with_bytes(call, 5 * call.elements(call.first_tensor())); }
OpCost normalization(const CostCall& call) { return with_bytes(call, 8 * call.elements(call.first_tensor())); }

OpCost matmul(const CostCall& call) { return with_bytes(call, 2 * call.elements(call.result(0)) * inner_size(call)); }

// A two-axis operand holds all groups, a three-axis one has one matrix per group; the offsets split the rows, or the
// inner axis when both operands have two axes.
OpCost grouped_mm(const CostCall& call) {
  const Type* left = call.tensor("self");
  const Type* right = call.tensor("mat2");
  bool splits_inner = left && right && left->shape.size() == 2 && right->shape.size() == 2;
  double products =
      splits_inner ? call.elements(left) * call.dim(right, -1) : call.elements(call.result(0)) * call.dim(left, -1);
  return with_bytes(call, 2 * products);
}

namespace {

// Flops of a convolution between `outer` (its output; its input when transposed) and its weight: two per multiply-add.
double convolution_flops(const CostCall& call, const Type* outer) {
  const Type* weight = call.tensor("weight");
  double channels = call.dim(weight, 0);
  return channels == 0 ? 0 : 2 * call.elements(outer) * call.elements(weight) / channels;
}

}  // namespace

OpCost convolution(const CostCall& call) {
  bool transposed = boolean(call, "transposed", false) || call.op.name.find("conv_transpose") != std::string_view::npos;
  return with_bytes(call, convolution_flops(call, transposed ? call.tensor("input") : call.result(0)));
}

OpCost convolution_backward(const CostCall& call) {
  bool transposed = boolean(call, "transposed", false);
  double one = convolution_flops(call, transposed ? call.tensor("input") : call.tensor("grad_output"));
  double products = 0;  // the gradients of input and weight each cost as much as the forward
  for (uint32_t i = 0; i < 2; ++i) products += call.result(i) != nullptr;
  return with_bytes(call, products * one);
}

namespace {

// The tensor that holds one number per pair of rows.
const Type* distances_of(const CostCall& call) {
  const Type* saved = first_of(call, {"cdist", "pdist"});
  return saved ? saved : call.result(0);
}

}  // namespace

OpCost distance(const CostCall& call) {
  return with_bytes(call, 3 * call.elements(distances_of(call)) * call.dim(first_of(call, {"x1", "self"}), -1));
}

namespace {

struct AttentionSizes {
  double pairs = 0;  // query positions times key positions, over batch and heads
  double key = 0, value = 0;
};

AttentionSizes attention_sizes(const CostCall& call) {
  const Type* q = call.tensor("query");
  AttentionSizes s;
  s.key = call.dim(q, -1);
  s.value = call.dim(call.tensor("value"), -1);
  double rows = s.key == 0 ? 0 : call.elements(q) / s.key;
  s.pairs = rows * call.dim(call.tensor("key"), -2);
  return s;
}

}  // namespace

OpCost attention(const CostCall& call) {
  AttentionSizes s = attention_sizes(call);
  return with_bytes(call, 2 * s.pairs * (s.key + s.value));
}

// Recomputes the scores, then computes the gradients of value, scores, query and key.
OpCost attention_backward(const CostCall& call) {
  AttentionSizes s = attention_sizes(call);
  return with_bytes(call, 2 * s.pairs * (3 * s.key + 2 * s.value));
}

}  // namespace sg::cost
