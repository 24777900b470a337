// Tensor: a strided view of memory at run time. It owns nothing; copying it copies the view.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "libgraph/dtype.h"

namespace sg {

inline constexpr int kMaxRank = 12;  // limit for tensors that can run; higher ranks are refused before the run

struct Tensor {
  std::byte* data = nullptr;  // of the first element; may be null if there are none
  DType dtype = DType::none;  // none = no tensor (an omitted argument)
  bool conjugate = false;     // complex: readers take the conjugate of the stored value
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};  // in elements; 0 along expanded axes

  bool is_none() const { return dtype == DType::none; }
  int64_t elements() const;
  int64_t bytes() const { return elements() * dtype_bytes(dtype); }
  std::span<const int64_t> sizes() const { return {shape.data(), static_cast<size_t>(rank)}; }
  std::span<const int64_t> strides() const { return {stride.data(), static_cast<size_t>(rank)}; }
  int64_t dim(int i) const { return shape[static_cast<size_t>(i < 0 ? i + rank : i)]; }
  int64_t step(int i) const { return stride[static_cast<size_t>(i < 0 ? i + rank : i)]; }

  // Row-major without gaps; axes of size 1, and all axes of an empty tensor, may have any stride.
  bool is_contiguous() const;
  // Whether the elements fill their memory without gaps or overlap, in some order of the axes.
  bool is_dense() const;

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

// A contiguous view of `data`.
Tensor make_tensor(std::byte* data, DType dtype, std::span<const int64_t> shape);

// `t` without axis `axis`, at index 0 of it.
Tensor drop_axis(const Tensor& t, int axis);

// `length` elements of `t` along `axis`, from `start` on.
Tensor narrow_axis(const Tensor& t, int axis, int64_t start, int64_t length);

// `t` with axes `a` and `b` swapped.
Tensor swap_axes(const Tensor& t, int a, int b);

// `t` viewed in a shape that it broadcasts to (PyTorch's rule). REQUIRES: it does.
Tensor broadcast_to(const Tensor& t, std::span<const int64_t> shape);

// `t` viewed in another shape, with its elements in the same row-major order. None if that is not a view, or `t` is
// empty.
std::optional<Tensor> view_as(const Tensor& t, std::span<const int64_t> shape);

bool same_shape(const Tensor& a, const Tensor& b);
// The same elements at the same place; strides of axes of size 1 may differ.
bool same_view(const Tensor& a, const Tensor& b);

// Bytes from the first to one past the last that the view touches; 0 if it is empty.
int64_t extent_bytes(const Tensor& t);

// Negative axes count from the end. REQUIRES: in range, as the verifier ensures.
inline int wrap_axis(int64_t axis, int rank) { return static_cast<int>(axis < 0 ? axis + rank : axis); }

}  // namespace sg
