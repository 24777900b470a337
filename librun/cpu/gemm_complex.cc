#include "librun/cpu/gemm_complex.h"

#include <array>

namespace sg::cpu {
namespace {

// The real or the imaginary parts of a complex tensor, where they lie.
Tensor part_of(const Tensor& t, bool imaginary) {
  Tensor part = t;
  part.dtype = t.dtype == DType::c64 ? DType::f32 : DType::f64;
  part.conjugate = false;
  if (imaginary) part.data += dtype_bytes(part.dtype);
  for (int axis = 0; axis < t.rank; ++axis) part.stride[static_cast<size_t>(axis)] *= 2;
  return part;
}

}  // namespace

bool is_complex_product(const Gemm& g) {
  return (g.a.dtype == DType::c64 || g.a.dtype == DType::c128) && g.out.dtype == g.a.dtype && g.self.is_none() &&
         g.alpha.to_complex() == 1.0 && !g.out.conjugate;
}

void gemm_complex(KernelCall& call, const Gemm& g) {
  const Tensor real = part_of(g.out, false), imaginary = part_of(g.out, true);
  const std::array a{part_of(g.a, false), part_of(g.a, true)}, b{part_of(g.b, false), part_of(g.b, true)};
  const int64_t sign_a = g.a.conjugate ? -1 : 1, sign_b = g.b.conjugate ? -1 : 1;
  const auto add = [&](const Tensor& out, int i, int j, int64_t sign, bool first) {
    Gemm part = g;
    part.out = out, part.a = a[static_cast<size_t>(i)], part.b = b[static_cast<size_t>(j)];
    part.alpha = Scalar::integer(sign);
    if (!first) part.self = out, part.beta = Scalar::integer(1);
    gemm(call, part);
  };
  add(real, 0, 0, 1, true);
  add(real, 1, 1, -sign_a * sign_b, false);
  add(imaginary, 0, 1, sign_b, true);
  add(imaginary, 1, 0, sign_a, false);
}

}  // namespace sg::cpu
