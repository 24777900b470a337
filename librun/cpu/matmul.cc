// Matrix product ops: each is one call of gemm().
#include <string>
#include <string_view>

#include "librun/backend.h"
#include "librun/cpu/dot_product.h"
#include "librun/cpu/fill.h"
#include "librun/cpu/gemm.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

Tensor as_row(const Tensor& vector) {
  Tensor t = vector;
  t.rank = 2;
  t.shape = {1, vector.dim(0)};
  t.stride = {vector.step(0) * vector.dim(0), vector.step(0)};
  return t;
}

Tensor as_column(const Tensor& vector) { return swap_axes(as_row(vector), 0, 1); }

Tensor as_matrix(const Tensor& scalar) {  // the result of a dot product
  Tensor t = scalar;
  t.rank = 2;
  t.shape = {1, 1};
  t.stride = {1, 1};
  return t;
}

// All axes but the last merged, if the strides allow it; else the tensor itself.
Tensor fold_rows(const Tensor& t) {
  Tensor out = t;
  while (out.rank > 2) {
    int64_t inner = out.dim(-2);
    if (out.dim(-3) != 1 && inner != 1 && out.step(-3) != inner * out.step(-2)) return t;
    int64_t step = inner == 1 ? out.step(-3) : out.step(-2);
    out.shape[static_cast<size_t>(out.rank - 3)] *= inner;
    out.stride[static_cast<size_t>(out.rank - 3)] = step;
    out = drop_axis(out, out.rank - 2);
  }
  return out;
}

// Data-dependent sizes have not been compared with each other before.
Status multiply(KernelCall& call, const Gemm& g) {
  if (g.a.dim(-1) != g.b.dim(-2) || g.a.dim(-2) != g.out.dim(-2) || g.b.dim(-1) != g.out.dim(-1))
    return call.fail("the matrices do not fit: " + std::to_string(g.a.dim(-2)) + " x " + std::to_string(g.a.dim(-1)) +
                     " by " + std::to_string(g.b.dim(-2)) + " x " + std::to_string(g.b.dim(-1)));
  gemm(call, g);
  return ok_status();
}

Status mm(KernelCall& call) { return multiply(call, {call.result(), call.tensor("self"), call.tensor("mat2")}); }

Status int_mm(KernelCall& call) {
  const auto widened = [&](std::string_view name) { return contiguous_as(call, call.tensor(name), DType::i32); };
  return multiply(call, {call.result(), widened("self"), widened("mat2")});
}

Status bmm(KernelCall& call) {
  const Tensor& a = call.tensor("self");
  const Tensor& b = call.tensor("mat2");
  if (a.dim(0) != b.dim(0))
    return call.fail("the numbers of matrices differ: " + std::to_string(a.dim(0)) + " and " +
                     std::to_string(b.dim(0)));
  return multiply(call, {call.result(), a, b});
}

Status mv(KernelCall& call) {
  return multiply(call, {as_column(call.result()), call.tensor("self"), as_column(call.tensor("vec"))});
}

Status dot(KernelCall& call) {
  const Tensor &a = call.tensor("self"), &b = call.tensor("tensor");
  const bool chains = is_floating(a.dtype) && call.numerics() != Numerics::strict && a.dim(0) == b.dim(0);
  if (!chains || backend_of(call.context())) return multiply(call, {as_matrix(call.result()), as_row(a), as_column(b)});
  visit_compute(a.dtype, [&]<class T>() {
    const auto vector = [&](const Tensor& t) { return contiguous_as(call, t, kDTypeOf<T>).template as<T>(); };
    dot_product<T>(call, vector(a), vector(b), a.dim(0), call.result());
  });
  return ok_status();
}

Status add_product(KernelCall& call, const Tensor& out, const Tensor& a, const Tensor& b) {
  Tensor self = broadcast_to(call.tensor("self"), call.result().sizes());
  if (self.rank == 1) self = as_column(self);
  return multiply(call, {out, a, b, self, call.scalar("alpha"), call.scalar("beta")});
}

Status addmm(KernelCall& call) { return add_product(call, call.result(), call.tensor("mat1"), call.tensor("mat2")); }
Status addmv(KernelCall& call) {
  return add_product(call, as_column(call.result()), call.tensor("mat"), as_column(call.tensor("vec")));
}

Status baddbmm(KernelCall& call) {
  const Tensor& a = call.tensor("batch1");
  const Tensor& b = call.tensor("batch2");
  if (a.dim(0) != b.dim(0))
    return call.fail("the numbers of matrices differ: " + std::to_string(a.dim(0)) + " and " +
                     std::to_string(b.dim(0)));
  return add_product(call, call.result(), a, b);
}

// Broadcasts the batch axes of `t` to those of `out`.
Tensor with_batch_of(const Tensor& t, const Tensor& out) {
  std::array<int64_t, kMaxRank> shape = out.shape;
  auto last = static_cast<size_t>(out.rank - 1);
  shape[last - 1] = t.dim(-2);
  shape[last] = t.dim(-1);
  return broadcast_to(t, {shape.data(), static_cast<size_t>(out.rank)});
}

Tensor insert_axis(const Tensor& t, int axis) {  // of size 1
  Tensor out = t;
  ++out.rank;
  for (int i = out.rank - 1; i > axis; --i) {
    out.shape[static_cast<size_t>(i)] = t.shape[static_cast<size_t>(i - 1)];
    out.stride[static_cast<size_t>(i)] = t.stride[static_cast<size_t>(i - 1)];
  }
  out.shape[static_cast<size_t>(axis)] = 1;
  out.stride[static_cast<size_t>(axis)] = 1;
  return out;
}

Status matmul(KernelCall& call) {
  Tensor a = call.tensor("self"), b = call.tensor("other"), out = call.result();
  if (out.rank + 2 > kMaxRank) return call.fail("too many dimensions");
  bool column = b.rank == 1, row = a.rank == 1;
  if (row) a = as_row(a);
  if (column) b = as_column(b);
  if (row) out = insert_axis(out, out.rank - (column ? 0 : 1));
  if (column) out = insert_axis(out, out.rank);
  if (b.rank == 2) {
    Tensor rows = fold_rows(a), folded = fold_rows(out);
    if (rows.rank == 2 && folded.rank == 2) return multiply(call, {folded, rows, b});
  }
  return multiply(call, {out, with_batch_of(a, out), with_batch_of(b, out)});
}

Status linear(KernelCall& call) {
  Tensor input = call.tensor("input"), weight = call.tensor("weight"), out = call.result();
  if (input.rank + 1 > kMaxRank) return call.fail("too many dimensions");
  if (weight.rank == 1) {
    weight = as_row(weight);
    out = insert_axis(out, out.rank);
  }
  if (input.rank == 1) {
    input = as_row(input);
    out = insert_axis(out, 0);
  }
  Tensor rows = fold_rows(input), folded = fold_rows(out);
  bool flat = rows.rank == 2 && folded.rank == 2;
  Gemm g{flat ? folded : out, flat ? rows : input, swap_axes(weight, 0, 1)};
  if (!flat) g.b = with_batch_of(g.b, out);
  if (call.has("bias")) {
    g.self = broadcast_to(call.tensor("bias"), g.out.sizes());
    g.beta = Scalar::integer(1);
  }
  return multiply(call, g);
}

constexpr KernelRow kRows[] = {
    {"aten.mm.default", mm},         {"aten._int_mm.default", int_mm}, {"aten.bmm.default", bmm},
    {"aten.mv.default", mv},         {"aten.dot.default", dot},        {"aten.addmm.default", addmm},
    {"aten.addmm_.default", addmm},  {"aten.addmv.default", addmv},    {"aten.baddbmm.default", baddbmm},
    {"aten.matmul.default", matmul}, {"aten.linear.default", linear},
};

}  // namespace

std::span<const KernelRow> matmul_kernels() { return kRows; }

}  // namespace sg::cpu
