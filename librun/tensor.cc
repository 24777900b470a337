#include "librun/tensor.h"

#include <algorithm>

namespace sg {

int64_t Tensor::elements() const {
  int64_t n = 1;
  for (int64_t size : sizes()) n *= size;
  return n;
}

bool Tensor::is_contiguous() const {
  int64_t expected = 1;
  bool dense = true;
  for (int i = rank - 1; i >= 0; --i) {
    if (dim(i) == 0) return true;
    dense &= dim(i) == 1 || step(i) == expected;
    expected *= dim(i);
  }
  return dense;
}

bool Tensor::is_dense() const {
  std::array<std::pair<int64_t, int64_t>, kMaxRank> axes;  // stride, size
  size_t count = 0;
  for (int i = 0; i < rank; ++i) {
    if (dim(i) == 0) return true;
    if (dim(i) != 1) axes[count++] = {step(i), dim(i)};
  }
  std::sort(axes.begin(), axes.begin() + count);
  int64_t expected = 1;
  for (size_t i = 0; i < count; ++i) {
    if (axes[i].first != expected) return false;
    expected *= axes[i].second;
  }
  return true;
}

Tensor make_tensor(std::byte* data, DType dtype, std::span<const int64_t> shape) {
  Tensor t;
  t.data = data;
  t.dtype = dtype;
  t.rank = static_cast<int>(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    t.shape[i] = shape[i];
    t.stride[i] = stride;
    stride *= std::max<int64_t>(shape[i], 1);
  }
  return t;
}

Tensor drop_axis(const Tensor& t, int axis) {
  Tensor out = t;
  for (auto i = static_cast<size_t>(axis); i + 1 < static_cast<size_t>(t.rank); ++i) {
    out.shape[i] = t.shape[i + 1];
    out.stride[i] = t.stride[i + 1];
  }
  --out.rank;
  return out;
}

Tensor narrow_axis(const Tensor& t, int axis, int64_t start, int64_t length) {
  Tensor part = t;
  part.shape[static_cast<size_t>(axis)] = length;
  part.data += start * t.step(axis) * dtype_bytes(t.dtype);
  return part;
}

Tensor swap_axes(const Tensor& t, int a, int b) {
  Tensor out = t;
  std::swap(out.shape[static_cast<size_t>(a)], out.shape[static_cast<size_t>(b)]);
  std::swap(out.stride[static_cast<size_t>(a)], out.stride[static_cast<size_t>(b)]);
  return out;
}

Tensor broadcast_to(const Tensor& t, std::span<const int64_t> shape) {
  Tensor out = t;
  out.rank = static_cast<int>(shape.size());
  int shift = out.rank - t.rank;
  for (int i = 0; i < out.rank; ++i) {
    auto axis = static_cast<size_t>(i);
    bool own = i >= shift && t.dim(i - shift) == shape[axis];
    out.shape[axis] = shape[axis];
    out.stride[axis] = own ? t.step(i - shift) : 0;
  }
  return out;
}

std::optional<Tensor> view_as(const Tensor& t, std::span<const int64_t> shape) {
  if (std::ranges::equal(t.sizes(), shape)) return t;
  Tensor out = t;
  out.rank = static_cast<int>(shape.size());
  int64_t elements = 1;
  for (size_t i = 0; i < shape.size(); ++i) elements *= out.shape[i] = shape[i];
  if (elements == 0 || elements != t.elements()) return std::nullopt;
  struct Run {
    int64_t size, step;
  };
  std::array<Run, kMaxRank> runs;  // of `t`, outermost first: axes that act as one
  size_t count = 0;
  for (int axis = 0; axis < t.rank; ++axis) {
    if (t.dim(axis) == 1) continue;
    const bool joins = count > 0 && runs[count - 1].step == t.step(axis) * t.dim(axis);
    if (joins) runs[count - 1] = {runs[count - 1].size * t.dim(axis), t.step(axis)};
    else runs[count++] = {t.dim(axis), t.step(axis)};
  }
  int to = out.rank - 1;
  while (count-- > 0) {
    int64_t taken = 1;
    for (; to >= 0 && taken < runs[count].size; --to) {
      out.stride[static_cast<size_t>(to)] = runs[count].step * taken;
      taken *= out.dim(to);
    }
    if (taken != runs[count].size) return std::nullopt;
  }
  for (; to >= 0; --to) out.stride[static_cast<size_t>(to)] = 1;  // axes of one element
  return out;
}

bool same_shape(const Tensor& a, const Tensor& b) { return std::ranges::equal(a.sizes(), b.sizes()); }

bool same_view(const Tensor& a, const Tensor& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.conjugate != b.conjugate || !same_shape(a, b)) return false;
  for (int i = 0; i < a.rank; ++i)
    if (a.dim(i) > 1 && a.step(i) != b.step(i)) return false;
  return true;
}

int64_t extent_bytes(const Tensor& t) {
  int64_t last = 0;
  for (int i = 0; i < t.rank; ++i) {
    if (t.dim(i) == 0) return 0;
    last += (t.dim(i) - 1) * t.step(i);
  }
  return (last + 1) * dtype_bytes(t.dtype);
}

}  // namespace sg
