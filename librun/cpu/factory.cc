// Tensors made from numbers alone.
#include <cmath>

#include "librun/cpu/fill.h"
#include "librun/cpu/kernels.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

Status empty(KernelCall&) { return ok_status(); }   // what it holds is not defined; the memory is there

Status zeros(KernelCall& call) { return fill(call, call.result(), Scalar::integer(0)), ok_status(); }
Status ones(KernelCall& call) { return fill(call, call.result(), Scalar::integer(1)), ok_status(); }
Status full(KernelCall& call) { return fill(call, call.result(), call.scalar("fill_value")), ok_status(); }
Status scalar_tensor(KernelCall& call) { return fill(call, call.result(), call.scalar("s")), ok_status(); }

// Integers count exactly, floats as PyTorch does: start + i * step in double, rounded once.
Status arange(KernelCall& call) {
  auto number = [&](std::string_view name, Scalar fallback) {
    return call.op().param_index(name) < 0 || !call.has(name) ? fallback : call.scalar(name);
  };
  Scalar start = number("start", Scalar::integer(0)), step = number("step", Scalar::integer(1));
  Tensor& out = call.result();
  visit_dtype(out.dtype, [&]<class T>() {
    if constexpr (!is_complex_type<T>) {
      auto* data = out.as<T>();
      for (int64_t i = 0; i < out.elements(); ++i) {
        if constexpr (std::is_integral_v<T>) data[i * out.stride[0]] = static_cast<T>(start.to_int() + i * step.to_int());
        else data[i * out.stride[0]] = static_cast<T>(static_cast<Compute<T>>(start.to_double() + static_cast<double>(i) * step.to_double()));
      }
    }
  });
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.empty.memory_format", empty},
    {"aten.empty_strided.default", empty},
    {"aten.empty_permuted.default", empty},
    {"aten.empty_like.default", empty},
    {"aten.new_empty.default", empty},
    {"aten.new_empty_strided.default", empty},
    {"aten.zeros.default", zeros},
    {"aten.zeros_like.default", zeros},
    {"aten.new_zeros.default", zeros},
    {"aten.ones.default", ones},
    {"aten.ones_like.default", ones},
    {"aten.new_ones.default", ones},
    {"aten.full.default", full},
    {"aten.full_like.default", full},
    {"aten.new_full.default", full},
    {"aten.scalar_tensor.default", scalar_tensor},
    {"aten.arange.default", arange},
    {"aten.arange.start", arange},
    {"aten.arange.start_step", arange},
};

}  // namespace

std::span<const KernelRow> factory_kernels() { return kRows; }

}  // namespace sg::cpu
