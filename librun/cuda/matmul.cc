// Matrix products of the backend.
#include <optional>

#include "librun/cpu/gemm.h"
#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/matmul_args.h"
#include "librun/cuda/products.h"

namespace sg::cuda {
namespace {

// Batch axes as one, when the strides allow; none otherwise.
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

// With kernels of our own: any type, any strides.
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
  device_of(call).launch("matmul_elements", blocks_for(args.to.count), args);
}

}  // namespace

Status multiply_three(KernelCall& call, const Product& p, const Tensor& add, Scalar alpha, Scalar beta) {
  if (p.out.elements() == 0) return ok_status();
  const bool adds = !add.is_none() && beta.to_complex() != 0.0, by_lt = is_floating(p.a.dtype) && p.a.dim(2) > 0;
  if (by_lt) {
    if (adds && add.data != p.out.data) backend_of(call).copy(p.out, add);
    Product scaled = p;
    scaled.alpha = alpha.to_double();
    scaled.beta = adds ? beta.to_double() : 0;
    SG_ASSIGN(bool done, backend_of(call).lt().multiply(scaled));
    if (done) return ok_status();
    multiply_plainly(call, p, adds ? p.out : Tensor(), alpha, beta);
    return ok_status();
  }
  multiply_plainly(call, p, adds ? add : Tensor(), alpha, beta);
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

// --- grouped ---

namespace {

Tensor with_batch(const Tensor& t) { return *as_three(t); }

Status grouped_mm(KernelCall& call) {
  const Tensor &a = call.tensor("self"), &b = call.tensor("mat2"), &out = call.result();
  if (call.has("bias")) return call.fail("a bias is not part of this op's definition");
  if (a.rank == 3 && b.rank == 3) return backend_of(call).multiply(call, {out, a, b});
  const Tensor& ends = call.tensor("offs");
  if (ends.is_none() || is_floating(ends.dtype) || is_complex(ends.dtype))
    return call.fail("needs integer offsets of the groups");
  MatmulArgs args;
  args.along = b.rank == 3 ? MatmulArgs::Along::m : a.rank == 3 ? MatmulArgs::Along::n : MatmulArgs::Along::k;
  if (args.along != MatmulArgs::Along::k)
    backend_of(call).fill(out, Scalar::integer(0));  // what is behind the last group
  args.to = Device::view(with_batch(out));
  args.a = Device::view(with_batch(a));
  args.b = Device::view(with_batch(b));
  args.ends = Device::view(ends);
  args.report = device_of(call).report();
  device_of(call).launch("matmul_elements", blocks_for(args.to.count), args);
  return ok_status();
}

constexpr KernelRow kMatmulRows[] = {
    {"aten._grouped_mm.default", grouped_mm},
};

}  // namespace

std::span<const KernelRow> matmul_kernels() { return kMatmulRows; }

}  // namespace sg::cuda
