#include "librun/work/shapes.h"

#include <algorithm>
#include <string>

#include "libgraph/shape_text.h"
#include "librun/execute/bindings.h"

namespace sg {

Tensor with_axis(const Tensor& t) {
  Tensor out = t;
  if (t.rank == 0) out.rank = 1, out.shape[0] = out.stride[0] = 1;
  return out;
}

Tensor axis_last(const Tensor& t, int64_t axis) {
  Tensor out = with_axis(t);
  for (int i = wrap_axis(axis, out.rank); i + 1 < out.rank; ++i) out = swap_axes(out, i, i + 1);
  return out;
}

bool broadcasts(const Tensor& t, std::span<const int64_t> shape) {
  if (t.rank > static_cast<int>(shape.size())) return false;
  for (int i = 1; i <= t.rank; ++i)
    if (t.dim(-i) != 1 && t.dim(-i) != shape[shape.size() - static_cast<size_t>(i)]) return false;
  return true;
}

std::vector<int64_t> broadcast_shape(const Tensor& a, const Tensor& b) {
  std::vector<int64_t> shape(static_cast<size_t>(std::max(a.rank, b.rank)), 1);
  for (const Tensor* t : {&a, &b})
    for (int i = 1; i <= t->rank; ++i)
      if (t->dim(-i) != 1) shape[shape.size() - static_cast<size_t>(i)] = t->dim(-i);
  return shape;
}

Status broadcast_index(const KernelCall& call, std::vector<int64_t>* shape, const Tensor& t) {
  if (t.rank > static_cast<int>(shape->size()))
    shape->insert(shape->begin(), static_cast<size_t>(t.rank) - shape->size(), 1);
  const size_t shift = shape->size() - static_cast<size_t>(t.rank);
  for (int axis = 0; axis < t.rank; ++axis) {
    int64_t& size = (*shape)[shift + static_cast<size_t>(axis)];
    if (size == 1) size = t.dim(axis);
    else if (t.dim(axis) != 1 && t.dim(axis) != size)
      return call.fail("the indices do not broadcast: sizes " + std::to_string(size) + " and " +
                       std::to_string(t.dim(axis)));
  }
  return ok_status();
}

Status result_of_shape(KernelCall& call, size_t i, std::span<const int64_t> shape) {
  if (call.result(i).is_none()) return call.allocate_result(i, shape);
  if (std::ranges::equal(shape, call.result(i).sizes())) return ok_status();
  return call.fail("the data gives " + shape_text(shape) + " where the graph has " + shape_text(call.result(i).sizes()),
                   std::string(kOfData));
}

bool is_slice_result(KernelCall& call, std::string_view flag, size_t i) {
  if (call.flag(flag)) return true;
  return call.has("dim") && (call.result(i).is_none() || call.result(i).elements() > 0);
}

Status check_probability(const KernelCall& call, double p) {
  if (p >= 0 && p <= 1) return ok_status();
  return call.fail("a probability is not within [0, 1]: " + std::to_string(p));
}

int64_t normalized_length(const KernelCall& call) {
  int64_t n = 1;
  for (int64_t size : call.integers("normalized_shape")) n *= size;
  return n;
}

}  // namespace sg
