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

int inner_channels(const Tensor& t, int axes) {
  constexpr int64_t kFewest = 8;
  const int axis = t.rank - axes - 1;
  if (axis < 0 || t.dim(axis) < kFewest || t.conjugate || t.is_contiguous()) return -1;
  return axis_last(t, axis).is_contiguous() ? axis : -1;
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

Status check_spread(const KernelCall& call, std::string_view parameter, bool may_be_zero) {
  const double spread = call.number(parameter);
  if (spread > 0 || (may_be_zero && spread == 0)) return ok_status();
  return call.fail(std::string(parameter) + (may_be_zero ? " is below 0: " : " is not above 0: ") +
                   std::to_string(spread));
}

Status check_interval(const KernelCall& call) {
  const double from = call.number("from"), to = call.number("to");
  if (from <= to) return ok_status();
  return call.fail("no number lies in [" + std::to_string(from) + ", " + std::to_string(to) + ")");
}

// Whether an integer is within the type's range; floats may round it.
static bool holds_integer(DType t, int64_t n) {
  if (t == DType::boolean) return n == 0 || n == 1;
  if (t == DType::f16) return -65504 <= n && n <= 65504;
  if (!is_integral(t) || t == DType::i64) return true;
  const bool is_signed = t == DType::i8 || t == DType::i16 || t == DType::i32;
  if (!is_signed) return n >= 0 && (t == DType::u64 || n >> (8 * dtype_bytes(t)) == 0);
  const int64_t limit = int64_t{1} << (8 * dtype_bytes(t) - 1);
  return -limit <= n && n < limit;
}

Status check_whole_range(const KernelCall& call, int64_t low, int64_t high) {
  const auto range = "[" + std::to_string(low) + ", " + std::to_string(high) + ")";
  if (low >= high) return call.fail("no integer lies in " + range);
  const DType dtype = call.result().dtype;
  if (holds_integer(dtype, low) && holds_integer(dtype, high - 1)) return ok_status();
  return call.fail(std::string(dtype_name(dtype)) + " does not hold all integers in " + range);
}

int64_t normalized_length(const KernelCall& call) {
  int64_t n = 1;
  for (int64_t size : call.integers("normalized_shape")) n *= size;
  return n;
}

}  // namespace sg
