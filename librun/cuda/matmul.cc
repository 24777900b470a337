// Matrix products of the backend.
#include <array>
#include <optional>

#include "librun/cpu/gemm.h"
#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/matmul_args.h"
#include "librun/cuda/products.h"

namespace sg::cuda {
namespace {

// Merges the batch axes, if the strides allow it; else none.
std::optional<Tensor> as_three(const Tensor& t) {
  Tensor out = t;
  while (out.rank < 3) {
    for (int axis = out.rank; axis > 0; --axis) {
      out.shape[static_cast<size_t>(axis)] = out.shape[static_cast<size_t>(axis - 1)];
      out.stride[static_cast<size_t>(axis)] = out.stride[static_cast<size_t>(axis - 1)];
    }
    out.shape[0] = 1;
    out.stride[0] = 0;
    ++out.rank;
  }
  while (out.rank > 3) {
    const int64_t inner = out.dim(1);
    if (out.dim(0) != 1 && inner != 1 && out.step(0) != inner * out.step(1)) return std::nullopt;
    const int64_t step = inner == 1 ? out.step(0) : out.step(1);
    const int64_t count = out.dim(0) * inner;
    out = drop_axis(out, 0);
    out.shape[0] = count;
    out.stride[0] = step;
  }
  return out;
}

Tensor folded(KernelCall& call, const Tensor& t) {
  if (auto three = as_three(t)) return *three;
  Tensor copy = backend_of(call).scratch(t.dtype, t.sizes());
  backend_of(call).copy(copy, t);
  return *as_three(copy);
}

// Uses our own kernels: any type, any strides.
void multiply_plainly(KernelCall& call, const Product& p, const Tensor& add, Scalar alpha, Scalar beta) {
  MatmulArgs args;
  args.to = Device::view(p.out);
  args.a = Device::view(p.a);
  args.b = Device::view(p.b);
  if (!add.is_none()) args.add = Device::view(add);
  args.alpha = alpha.to_complex().real();
  args.beta = beta.to_complex().real();
  args.alpha_im = alpha.to_complex().imag();
  args.beta_im = beta.to_complex().imag();
  args.whole_alpha = alpha.is_integral() ? alpha.i : static_cast<int64_t>(alpha.re);
  args.whole_beta = beta.is_integral() ? beta.i : static_cast<int64_t>(beta.re);
  args.report = device_of(call).report();
  if (is_floating(p.a.dtype)) backend_of(call).note_plain_product();
  device_of(call).launch("matmul_elements", blocks_for(args.to.count), args);
}

// `add` [batch, m, n] as numbers shared by all rows; none if rows differ.
Tensor row_in_common(const Tensor& add, const Product& p) {
  auto repeats = [&](int axis) { return add.dim(axis) == 1 || add.step(axis) == 0; };
  if (add.dtype != p.out.dtype || !repeats(0) || !repeats(1) || (add.dim(2) > 1 && add.step(2) != 1)) return {};
  return make_tensor(add.data, add.dtype, std::array{add.dim(2)});
}

// Uses cuBLASLt. False: it does not support the product; `out` may hold `add` by then.
Result<bool> multiply_by_library(KernelCall& call, Product p, const Tensor& add, Scalar alpha, Scalar beta) {
  Lt& lt = backend_of(call).lt();
  p.alpha = alpha.to_double();
  if (add.is_none()) return lt.multiply(p);
  if (beta.to_double() == 1) p.bias = aligned_bias(call, row_in_common(add, p));
  if (!p.bias.is_none()) {
    SG_ASSIGN(const bool done, lt.multiply(p));
    if (done) return true;
    p.bias = {};
  }
  if (add.data != p.out.data) backend_of(call).copy(p.out, add);
  p.beta = beta.to_double();
  return lt.multiply(p);
}

// --- strides that the library does not take ---

// A copy with rows side by side; entries of a batch that are one in memory stay one.
Tensor copied_rows(KernelCall& call, const Tensor& t) {
  Tensor one = t;
  if (t.step(0) == 0) one.shape[0] = 1;
  Tensor copy = in_rows(call, one);
  copy.shape[0] = t.dim(0);
  if (t.step(0) == 0) copy.stride[0] = 0;
  return copy;
}

// Whether copies of operands are cheap beside what our own kernel would take.
bool is_worth_copies(const Product& p) {
  constexpr double kLeastWork = 1 << 16;
  return static_cast<double>(p.out.elements()) * static_cast<double>(p.a.dim(2)) >= kLeastWork;
}

// multiply_by_library for any strides, with copies if there are others.
Result<bool> multiply_copies_by_library(KernelCall& call, Product p, const Tensor& add, Scalar alpha, Scalar beta) {
  auto fits = [](const Tensor& t) { return Lt::takes_strides(t); };
  if (fits(p.a) && fits(p.b) && fits(p.out)) return multiply_by_library(call, p, add, alpha, beta);
  if (!is_worth_copies(p)) return false;
  const Tensor out = p.out;
  if (!fits(p.a)) p.a = copied_rows(call, p.a);
  if (!fits(p.b)) p.b = copied_rows(call, p.b);
  if (!fits(out)) p.out = backend_of(call).scratch(out.dtype, out.sizes());
  SG_ASSIGN(const bool done, multiply_by_library(call, p, add, alpha, beta));
  if (done && !fits(out)) backend_of(call).copy(out, p.out);
  return done;
}

}  // namespace

Tensor aligned_bias(KernelCall& call, const Tensor& bias) {
  constexpr uintptr_t kUnit = 16;
  if (bias.is_none() || reinterpret_cast<uintptr_t>(bias.data) % kUnit == 0) return bias;
  const Tensor copy = backend_of(call).scratch(bias.dtype, bias.sizes());
  backend_of(call).copy(copy, bias);
  return copy;
}

Status multiply_three(KernelCall& call, const Product& p, const Tensor& add, Scalar alpha, Scalar beta) {
  if (p.out.elements() == 0) return ok_status();
  const Tensor added = beta.to_complex() == 0.0 ? Tensor() : add;
  if (is_floating(p.a.dtype) && p.a.dim(2) > 0) {
    SG_ASSIGN(const bool done, multiply_copies_by_library(call, p, added, alpha, beta));
    if (done) return ok_status();
  }
  multiply_plainly(call, p, added, alpha, beta);
  return ok_status();
}

Status CudaBackend::multiply(KernelCall& call, const cpu::Gemm& g) {
  Tensor out = g.out;
  const bool direct = as_three(out).has_value();
  if (!direct) out = backend_of(call).scratch(out.dtype, out.sizes());
  Tensor add = g.self.is_none() ? Tensor() : folded(call, broadcast_to(g.self, g.out.sizes()));
  const Product p{*as_three(out), folded(call, g.a), folded(call, g.b)};
  SG_TRY(multiply_three(call, p, add, g.alpha, g.beta));
  if (!direct) copy(g.out, out);
  return ok_status();
}

}  // namespace sg::cuda
