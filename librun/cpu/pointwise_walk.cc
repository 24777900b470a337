#include "librun/cpu/pointwise_walk.h"

#include <cstdlib>

namespace sg::cpu {
namespace {

// Whether axis `a` is outside axis `b`: the first tensor that has strides along both decides.
bool outside(std::span<const Tensor> tensors, int a, int b) {
  for (const Tensor& t : tensors) {
    int64_t sa = std::llabs(t.step(a)), sb = std::llabs(t.step(b));
    if (sa != 0 && sb != 0 && sa != sb) return sa > sb;
  }
  return a < b;
}

}  // namespace

std::vector<int> visiting_order(std::span<const Tensor> tensors) {
  std::vector<int> order;
  for (int axis = 0; axis < tensors[0].rank; ++axis) {
    if (tensors[0].dim(axis) == 1) continue;
    auto at = order.end();
    while (at != order.begin() && outside(tensors, axis, *(at - 1))) --at;
    order.insert(at, axis);
  }
  return order;
}

Layout::Layout(const Tensor& t, std::span<const int> order) {
  for (int axis : order) {
    auto last = static_cast<size_t>(axes);
    bool joins = axes > 0 && stride[last - 1] == t.step(axis) * t.dim(axis);
    if (joins) {
      shape[last - 1] *= t.dim(axis);
      stride[last - 1] = t.step(axis);
    } else {
      shape[last] = t.dim(axis);
      stride[last] = t.step(axis);
      ++axes;
    }
  }
}

Cursor::Cursor(const Layout* layout, int64_t element) : layout_(layout) {
  for (int axis = layout->axes - 1; axis >= 0; --axis) {
    auto a = static_cast<size_t>(axis);
    index_[a] = element % layout->shape[a];
    element /= layout->shape[a];
    offset_ += index_[a] * layout->stride[a];
  }
}

void Cursor::carry() {
  for (int axis = layout_->axes - 1; axis >= 0; --axis) {
    auto a = static_cast<size_t>(axis);
    if (index_[a] < layout_->shape[a]) return;
    offset_ -= layout_->shape[a] * layout_->stride[a];
    index_[a] = 0;
    if (axis == 0) return;
    ++index_[a - 1];
    offset_ += layout_->stride[a - 1];
  }
}

}  // namespace sg::cpu
