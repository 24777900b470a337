#include "librun/cpu/gemm_complex.h"

#include <array>

#include "librun/cpu/fill.h"

namespace sg::cpu {
namespace {

// A view of the real or imaginary parts of a complex tensor.
Tensor part_of(const Tensor& t, bool imaginary) {
  Tensor part = t;
  part.dtype = t.dtype == DType::c64 ? DType::f32 : DType::f64;
  part.conjugate = false;
  if (imaginary) part.data += dtype_bytes(part.dtype);
  for (int axis = 0; axis < t.rank; ++axis) part.stride[static_cast<size_t>(axis)] *= 2;
  return part;
}

// A copy of the parts in which rows are contiguous. Expanded axes stay expanded.
Tensor gathered(KernelCall& call, const Tensor& part) {
  Tensor from = part;
  for (int axis = 0; axis < part.rank; ++axis)
    if (part.stride[static_cast<size_t>(axis)] == 0) from.shape[static_cast<size_t>(axis)] = 1;
  Tensor to = call.scratch().tensor(part.dtype, from.sizes());
  copy(call, to, from);
  for (int axis = 0; axis < part.rank; ++axis)
    if (part.stride[static_cast<size_t>(axis)] == 0) to.stride[static_cast<size_t>(axis)] = 0;
  to.shape = part.shape;
  return to;
}

}  // namespace

bool is_complex_product(const Gemm& g) {
  return (g.a.dtype == DType::c64 || g.a.dtype == DType::c128) && g.out.dtype == g.a.dtype && g.self.is_none() &&
         g.alpha.to_complex() == 1.0 && !g.out.conjugate;
}

void gemm_complex(KernelCall& call, const Gemm& g) {
  if (g.out.elements() == 0) return;
  const auto parts = [&](const Tensor& t) {
    return std::array{gathered(call, part_of(t, false)), gathered(call, part_of(t, true))};
  };
  const std::array a = parts(g.a), b = parts(g.b);
  const Tensor real = part_of(g.out, false), imaginary = part_of(g.out, true);
  const Tensor sum = call.scratch().tensor(real.dtype, real.sizes());
  const int64_t sign_a = g.a.conjugate ? -1 : 1, sign_b = g.b.conjugate ? -1 : 1;
  const auto add = [&](int i, int j, int64_t sign, bool first) {
    Gemm part = g;
    part.out = sum, part.a = a[static_cast<size_t>(i)], part.b = b[static_cast<size_t>(j)];
    part.alpha = Scalar::integer(sign);
    if (!first) part.self = sum, part.beta = Scalar::integer(1);
    gemm(call, part);
  };
  add(0, 0, 1, true);
  add(1, 1, -sign_a * sign_b, false);
  copy(call, real, sum);
  add(0, 1, sign_b, true);
  add(1, 0, sign_a, false);
  copy(call, imaginary, sum);
}

}  // namespace sg::cpu
