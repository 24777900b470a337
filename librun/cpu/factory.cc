// Tensors created from numbers alone.
#include <algorithm>
#include <array>
#include <cmath>

#include "librun/cpu/fill.h"
#include "librun/cpu/kernels.h"
#include "librun/element.h"
#include "librun/work/run.h"
#include "librun/work/spread.h"

namespace sg::cpu {
namespace {

Status empty(KernelCall&) { return ok_status(); }  // contents are undefined; the memory exists already

Status zeros(KernelCall& call) { return fill(call, call.result(), Scalar::integer(0)), ok_status(); }
Status ones(KernelCall& call) { return fill(call, call.result(), Scalar::integer(1)), ok_status(); }
Status full(KernelCall& call) { return fill(call, call.result(), call.scalar("fill_value")), ok_status(); }
Status scalar_tensor(KernelCall& call) { return fill(call, call.result(), call.scalar("s")), ok_status(); }

// Integers are exact; floats as in PyTorch: start + i * step in double, rounded once.
Status arange(KernelCall& call) {
  auto number = [&](std::string_view name, Scalar fallback) {
    return call.op().param_index(name) < 0 || !call.has(name) ? fallback : call.scalar(name);
  };
  Scalar start = number("start", Scalar::integer(0)), step = number("step", Scalar::integer(1));
  const Tensor& out = call.result();
  visit_dtype(out.dtype, [&]<class T>() {
    if constexpr (!is_complex_type<T>) {
      auto* data = out.as<T>();
      for (int64_t i = 0; i < out.elements(); ++i) {
        if constexpr (std::is_integral_v<T>)
          data[i * out.stride[0]] = static_cast<T>(start.to_int() + i * step.to_int());
        else
          data[i * out.stride[0]] =
              static_cast<T>(static_cast<Compute<T>>(start.to_double() + static_cast<double>(i) * step.to_double()));
      }
    }
  });
  return ok_status();
}

Status linspace(KernelCall& call) {
  const Tensor& out = call.result();
  const std::complex<double> from = call.param("start").scalar.to_complex(), to = call.param("end").scalar.to_complex();
  const DType wide = is_complex(out.dtype) ? DType::c128 : DType::f64;
  const bool whole = !is_floating(out.dtype) && !is_complex(out.dtype);
  work::Spread work{out.dim(0), is_complex(out.dtype) ? 2 : 1, {from.real(), from.imag()}, {to.real(), to.imag()}, {},
                    {}};
  for (int k = 0; k < 2; ++k) {
    if (whole) work.start[k] = std::trunc(work.start[k]), work.end[k] = std::trunc(work.end[k]);
    work.step[k] = work.count > 1 ? (work.end[k] - work.start[k]) / static_cast<double>(work.count - 1) : 0;
  }
  Tensor numbers = workspace(call, wide, out.sizes());
  work.to = numbers.as<double>();
  for_each(call, work.count * work.parts, kPieceElements, work);
  copy(call, out, numbers);
  return ok_status();
}

Status eye(KernelCall& call) {
  const Tensor& out = call.result();
  fill(call, out, Scalar::integer(0));
  Tensor diagonal = drop_axis(out, 1);
  diagonal.shape[0] = std::min(out.dim(0), out.dim(1));
  diagonal.stride[0] = out.step(0) + out.step(1);
  fill(call, diagonal, Scalar::integer(1));
  return ok_status();
}

// Row and column indices of a triangle's elements, row by row.
Status triangle_indices(KernelCall& call, bool upper) {
  const Tensor& out = call.result();
  int64_t rows = call.integer("row"), columns = call.integer("col"),
          offset = std::clamp(call.integer("offset"), -rows - columns, rows + columns);
  auto first = [&](int64_t row) { return upper ? std::clamp<int64_t>(row + offset, 0, columns) : 0; };
  auto end = [&](int64_t row) { return upper ? columns : std::clamp<int64_t>(row + offset + 1, 0, columns); };
  int64_t n = 0;
  for (int64_t row = 0; row < rows; ++row) n += end(row) - first(row);
  if (out.is_none()) SG_TRY(call.allocate_result(0, std::array<int64_t, 2>{2, n}));
  if (call.result().dim(1) != n)
    return call.fail("the triangle has " + std::to_string(n) + " elements, not " +
                     std::to_string(call.result().dim(1)));
  std::vector<int64_t> places(static_cast<size_t>(2 * n));
  size_t k = 0;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = first(row); column < end(row); ++column, ++k)
      places[k] = row, places[static_cast<size_t>(n) + k] = column;
  const auto* at = table(call, std::span<const int64_t>(places));
  std::byte* memory = reinterpret_cast<std::byte*>(const_cast<int64_t*>(at));
  copy(call, call.result(), make_tensor(memory, DType::i64, std::array<int64_t, 2>{2, n}));
  return ok_status();
}

Status tril_indices(KernelCall& call) { return triangle_indices(call, false); }
Status triu_indices(KernelCall& call) { return triangle_indices(call, true); }

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
    {"aten.linspace.default", linspace},
    {"aten.eye.default", eye},
    {"aten.eye.m", eye},
    {"aten.tril_indices.default", tril_indices},
    {"aten.triu_indices.default", triu_indices},
};

}  // namespace

std::span<const KernelRow> factory_kernels() { return kRows; }

}  // namespace sg::cpu
