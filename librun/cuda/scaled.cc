// Products of float8: by cuBLASLt if the device multiplies float8 and the layouts of the operands are supported;
// otherwise they are widened and multiplied as on the CPU (cpu/scaled_mm.cc).
#include "librun/cpu/fill.h"
#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/lt.h"
#include "librun/cuda/products.h"

namespace sg::cuda {
namespace {

constexpr int64_t kFloat8Unit = 16;  // cuBLASLt requires sizes and rows of float8 to be multiples of this

Tensor batch_of_one(const Tensor& t) {
  Tensor out = t;
  out.rank = 3;
  out.shape = {1, t.dim(0), t.dim(1)};
  out.stride = {0, t.step(0), t.step(1)};
  return out;
}

bool multiplies(DType t) { return t == DType::f8e4m3fn || t == DType::f8e5m2; }

// Whether rows of `a` and columns of `b` are contiguous, in whole units.
bool lies_right(const Tensor& a, const Tensor& b) {
  return a.step(1) == 1 && b.step(0) == 1 && a.step(0) % kFloat8Unit == 0 && b.step(1) % kFloat8Unit == 0 &&
         a.dim(1) % kFloat8Unit == 0 && b.dim(1) % kFloat8Unit == 0;
}

// Whether there is one scale per operand, or one per row and one per column.
bool is_taken(const Tensor& scale_a, const Tensor& scale_b, const Tensor& out, bool* each) {
  *each = scale_a.elements() != 1 || scale_b.elements() != 1;
  return !*each || (scale_a.elements() == out.dim(0) && scale_a.dim(0) == out.dim(0) &&
                    scale_b.elements() == out.dim(1) && scale_b.dim(-1) == out.dim(1));
}

Result<bool> multiply_float8(KernelCall& call) {
  const Tensor &a = call.tensor("self"), &b = call.tensor("mat2"), &out = call.result(), &bias = call.tensor("bias");
  const bool types = multiplies(a.dtype) && multiplies(b.dtype) && (a.dtype != b.dtype || a.dtype == DType::f8e4m3fn);
  Product p;
  if (!types || out.elements() == 0 || a.dim(1) == 0 || !lies_right(a, b) || call.has("scale_result") ||
      is_float8(out.dtype) || !is_taken(call.tensor("scale_a"), call.tensor("scale_b"), out, &p.scales_each))
    return false;
  if (!bias.is_none() && (bias.dtype != out.dtype || out.dtype == DType::f32)) return false;
  p.out = batch_of_one(out), p.a = batch_of_one(a), p.b = batch_of_one(b);
  if (!bias.is_none()) p.bias = aligned_bias(call, cpu::contiguous(call, bias));
  p.scale_a = cpu::contiguous_as(call, call.tensor("scale_a"), DType::f32).as<float>();
  p.scale_b = cpu::contiguous_as(call, call.tensor("scale_b"), DType::f32).as<float>();
  p.fast_sums = call.flag("use_fast_accum");
  return backend_of(call).lt().multiply(p);
}

Status scaled_mm(KernelCall& call) {
  SG_ASSIGN(const bool done, multiply_float8(call));
  return done ? ok_status() : find_cpu_kernel(call.op().name)(call);
}

constexpr KernelRow kScaledRows[] = {{"aten._scaled_mm.default", scaled_mm}};

}  // namespace

std::span<const KernelRow> scaled_kernels() { return kScaledRows; }

}  // namespace sg::cuda
