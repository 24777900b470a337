// The layout of a tensor along the line of elements that a pointwise program runs over.
#pragma once

#include <span>
#include <vector>

#include "librun/tensor.h"

namespace sg::cpu {

// The order in which a program visits the axes of its tensors: by memory, for long runs. All tensors have one shape.
// Axes of size 1 are omitted.
std::vector<int> visiting_order(std::span<const Tensor> tensors);

// One tensor along that line: axes that continue each other are merged.
struct Layout {
  int axes = 0;
  std::array<int64_t, kMaxRank> shape{}, stride{};

  Layout() = default;
  Layout(const Tensor& t, std::span<const int> order);
  bool is_line() const { return axes == 0 || (axes == 1 && stride[0] == 1); }   // element i is at offset i
  bool is_point() const { return axes == 0 || (axes == 1 && stride[0] == 0); }  // a single element for all
};

// A position on the line, advanced in runs of one stride.
class Cursor {
 public:
  Cursor() = default;
  Cursor(const Layout* layout, int64_t element);

  // Calls fn(offset, count, stride) for the runs that contain the next n elements.
  template <class Fn>
  void take(int64_t n, const Fn& fn) {
    if (layout_->axes == 0) return fn(int64_t{0}, n, int64_t{0});
    auto last = static_cast<size_t>(layout_->axes - 1);
    while (n > 0) {
      int64_t run = layout_->shape[last] - index_[last];
      if (run > n) run = n;
      fn(offset_, run, layout_->stride[last]);
      n -= run;
      index_[last] += run;
      offset_ += run * layout_->stride[last];
      if (index_[last] == layout_->shape[last]) carry();
    }
  }

 private:
  void carry();

  const Layout* layout_ = nullptr;
  int64_t offset_ = 0;
  std::array<int64_t, kMaxRank> index_{};
};

}  // namespace sg::cpu
