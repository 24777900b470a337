// Copies of views, gradients of views, and copies with a part replaced.
#include <algorithm>
#include <limits>

#include "librun/cpu/fill.h"
#include "librun/cpu/kernels.h"
#include "librun/work/run.h"
#include "librun/work/windows.h"

namespace sg::cpu {
namespace {

// The slice of `t` at `index` along `axis`, without that axis.
Tensor selected(const Tensor& t, int axis, int64_t index) {
  Tensor at = t;
  at.data += index * t.step(axis) * dtype_bytes(t.dtype);
  return drop_axis(at, axis);
}

// Python's slice: bounds are clamped to the axis.
Tensor sliced(const Tensor& t, int axis, int64_t start, int64_t end, int64_t step) {
  int64_t size = t.dim(axis);
  step = std::min(step, std::max<int64_t>(size, 1));  // a longer one takes just the first element, too
  if (start < 0) start = std::max<int64_t>(start + size, 0);
  if (end < 0) end += size;
  start = std::min(start, size);
  end = std::clamp(end, start, size);
  Tensor part = t;
  part.shape[static_cast<size_t>(axis)] = (end - start) / step + ((end - start) % step != 0);
  part.stride[static_cast<size_t>(axis)] = t.step(axis) * step;
  part.data += start * t.step(axis) * dtype_bytes(t.dtype);
  return part;
}

Result<Tensor> slice_of(KernelCall& call, const Tensor& t) {
  int64_t start = call.has("start") ? call.integer("start") : 0;
  int64_t end = call.has("end") ? call.integer("end") : std::numeric_limits<int64_t>::max();
  int64_t step = call.integer("step");
  if (step <= 0) return call.fail("a slice needs a step of at least 1, not " + std::to_string(step));
  return sliced(t, wrap_axis(call.integer("dim"), t.rank), start, end, step);
}

Result<Tensor> selection_of(KernelCall& call, const Tensor& t) {
  int axis = wrap_axis(call.integer("dim"), t.rank);
  int64_t index = call.integer("index"), wrapped = index < 0 ? index + t.dim(axis) : index;
  if (wrapped < 0 || wrapped >= t.dim(axis))
    return call.fail("index " + std::to_string(index) + " is out of range for size " + std::to_string(t.dim(axis)));
  return selected(t, axis, wrapped);
}

Status copy_exactly(KernelCall& call, const Tensor& out, const Tensor& in) {
  if (!same_shape(out, in)) return call.fail("the shapes of what is copied differ");
  return copy(call, out, in), ok_status();
}

// The same elements in row-major order under another shape.
Status reshape(KernelCall& call) {
  const Tensor& out = call.result();
  Tensor self = call.tensor("self");
  if (self.elements() != out.elements()) return call.fail("a reshape cannot change the number of elements");
  if (out.is_contiguous()) {  // one copy, for any strides of self
    copy(call, make_tensor(out.data, out.dtype, self.sizes()), self);
    return ok_status();
  }
  self = contiguous(call, self);
  copy(call, out, make_tensor(self.data, self.dtype, out.sizes()));
  return ok_status();
}

Status expand_copy(KernelCall& call) {
  copy(call, call.result(), broadcast_to(call.tensor("self"), call.result().sizes()));
  return ok_status();
}

Status permute_copy(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  Tensor permuted = self;
  std::vector<int> dims = call.axes("dims", self.rank);
  for (size_t i = 0; i < dims.size(); ++i) {
    permuted.shape[i] = self.dim(dims[i]);
    permuted.stride[i] = self.step(dims[i]);
  }
  return copy_exactly(call, call.result(), permuted);
}

Status slice_copy(KernelCall& call) {
  SG_ASSIGN(Tensor part, slice_of(call, call.tensor("self")));
  return copy_exactly(call, call.result(), part);
}

// Zeros outside of `part`, which is `count` neighbouring slices along the axis: around it, if what is before and behind
// it are two blocks of memory; else everywhere.
void zero_around(KernelCall& call, const Tensor& part, int axis, int64_t count) {
  const Tensor& out = call.result();
  bool is_outermost = out.is_contiguous() && count > 0;
  for (int outer = 0; outer < axis; ++outer) is_outermost &= out.dim(outer) == 1;
  if (!is_outermost) return fill(call, out, Scalar::integer(0));
  const int64_t slice_bytes = out.bytes() / out.dim(axis);
  Tensor before = out, after = out;
  before.shape[static_cast<size_t>(axis)] = (part.data - out.data) / std::max<int64_t>(slice_bytes, 1);
  after.shape[static_cast<size_t>(axis)] = out.dim(axis) - before.dim(axis) - count;
  after.data = part.data + count * slice_bytes;
  for (const Tensor& zeros : {before, after})
    if (zeros.elements() > 0) fill(call, zeros, Scalar::integer(0));
}

Status slice_backward(KernelCall& call) {
  SG_ASSIGN(Tensor part, slice_of(call, call.result()));
  const int axis = wrap_axis(call.integer("dim"), part.rank);
  zero_around(call, part, axis, call.integer("step") == 1 ? part.dim(axis) : 0);
  return copy_exactly(call, part, call.tensor("grad_output"));
}

Status select_backward(KernelCall& call) {
  SG_ASSIGN(Tensor part, selection_of(call, call.result()));
  zero_around(call, part, wrap_axis(call.integer("dim"), call.result().rank), 1);
  return copy_exactly(call, part, call.tensor("grad_output"));
}

// Each element gets the sum over the windows that contain it.
void add_windows(KernelCall& call, int axis, int64_t windows) {
  const Tensor& out = call.result();
  const DType wide = is_complex(out.dtype) ? DType::c128 : DType::f64;
  const int64_t parts = is_complex(out.dtype) ? 2 : 1, size = call.integer("size"), step = call.integer("step");
  int64_t inner = 1;
  for (int i = axis + 1; i < out.rank; ++i) inner *= out.dim(i);
  std::vector<int64_t> shape(out.sizes().begin(), out.sizes().end());
  shape[static_cast<size_t>(axis)] = windows;
  shape.push_back(size);
  const auto* from = contiguous_as(call, broadcast_to(call.tensor("grad_in"), shape), wide).as<double>();
  Tensor sums = workspace(call, wide, out.sizes());
  for_each(call, sums.elements() * parts, kPieceElements / 4,
           work::AddWindows{out.dim(axis), inner, windows, size, step, parts, from, sums.as<double>()});
  copy(call, out, sums);
}

Status unfold_backward(KernelCall& call) {
  const Tensor &out = call.result(), &grad = call.tensor("grad_in");
  if (out.rank == 0) return copy_exactly(call, out, make_tensor(contiguous(call, grad).data, grad.dtype, {}));
  const int axis = wrap_axis(call.integer("dim"), out.rank);
  const int64_t size = call.integer("size"), step = call.integer("step");
  if (size < 1 || step < 1 || size > out.dim(axis)) return call.fail("the windows do not fit");
  const int64_t windows = (out.dim(axis) - size) / step + 1;
  if (grad.rank != out.rank + 1 || grad.dim(axis) != windows || grad.dim(-1) != size)
    return call.fail("the gradient's windows differ");
  add_windows(call, axis, windows);
  return ok_status();
}

Status slice_scatter(KernelCall& call) {
  copy(call, call.result(), call.tensor("self"));
  SG_ASSIGN(Tensor part, slice_of(call, call.result()));
  return copy_exactly(call, part, broadcast_to(call.tensor("src"), part.sizes()));
}

Status select_scatter(KernelCall& call) {
  copy(call, call.result(), call.tensor("self"));
  SG_ASSIGN(Tensor part, selection_of(call, call.result()));
  return copy_exactly(call, part, call.tensor("src"));
}

// Strides and offset refer to the result's own storage, which has the strides of self.
Status as_strided_scatter(KernelCall& call) {
  const Tensor& out = call.result();
  copy(call, out, call.tensor("self"));
  std::span<const int64_t> size = call.integers("size"), stride = call.integers("stride");
  Tensor part = out;
  part.rank = static_cast<int>(size.size());
  int64_t last = call.has("storage_offset") ? call.integer("storage_offset") : 0, bytes = dtype_bytes(out.dtype);
  bool inside = last >= 0 && size.size() == stride.size() && size.size() <= static_cast<size_t>(kMaxRank);
  if (inside) part.data += std::min(last, extent_bytes(out)) * bytes;
  for (size_t i = 0; inside && i < size.size(); ++i) {
    part.shape[i] = size[i];
    part.stride[i] = stride[i];
    int64_t reach;
    inside = size[i] >= 0 && stride[i] >= 0 &&
             !__builtin_mul_overflow(std::max<int64_t>(size[i] - 1, 0), stride[i], &reach) &&
             !__builtin_add_overflow(last, reach, &last);
  }
  if (!inside || (part.elements() > 0 && last >= extent_bytes(out) / bytes))
    return call.fail("the strided part does not lie within the tensor");
  return copy_exactly(call, part, call.tensor("src"));
}

// The same bytes, seen as elements of the result's type.
Status copy_bits(KernelCall& call) {
  const Tensor& out = call.result();
  const Tensor self = contiguous(call, call.tensor("self"));
  if (self.bytes() != out.bytes()) return call.fail("the bytes of self are not those of the result");
  return copy(call, out, make_tensor(self.data, out.dtype, out.sizes())), ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.reshape.default", reshape},
    {"aten.flatten.using_ints", reshape},
    {"aten.view_copy.default", reshape},
    {"aten.expand_copy.default", expand_copy},
    {"aten.permute_copy.default", permute_copy},
    {"aten.slice_copy.Tensor", slice_copy},
    {"aten.slice_backward.default", slice_backward},
    {"aten.select_backward.default", select_backward},
    {"aten.unfold_backward.default", unfold_backward},
    {"aten.slice_scatter.default", slice_scatter},
    {"aten.select_scatter.default", select_scatter},
    {"aten.as_strided_scatter.default", as_strided_scatter},
    {"sg.copy_bits", copy_bits},
};

}  // namespace

std::span<const KernelRow> view_copy_kernels() { return kRows; }

}  // namespace sg::cpu
