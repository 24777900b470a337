#include "librun/cpu/move.h"

#include <array>
#include <vector>

#include "librun/cpu/pointwise_walk.h"

namespace sg::cpu {
namespace {

constexpr int64_t kMostBytes = 16;  // of a word
static_assert(work::kMostLineAxes == kMaxRank);

// Whether words of `count` elements are contiguous in memory and aligned, at every position of the line.
bool has_words(const Layout& line, const Tensor& t, int64_t count) {
  if (line.axes == 0) return false;
  const auto last = static_cast<size_t>(line.axes - 1);
  if (line.stride[last] != 1 || line.shape[last] % count != 0) return false;
  for (size_t axis = 0; axis < last; ++axis)
    if (line.stride[axis] % count != 0) return false;
  return reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(count * dtype_bytes(t.dtype)) == 0;
}

// The line in words of `count` elements.
work::WordLine in_words(const Layout& line, int64_t count) {
  work::WordLine out;
  out.axes = line.axes;
  for (size_t axis = 0; axis < static_cast<size_t>(line.axes); ++axis) {
    const bool is_last = axis + 1 == static_cast<size_t>(line.axes);
    out.shape[axis] = is_last ? line.shape[axis] / count : line.shape[axis];
    out.stride[axis] = is_last ? line.stride[axis] : line.stride[axis] / count;
  }
  return out;
}

}  // namespace

MovePlan plan_move(const Tensor& to, const Tensor& from) {
  const std::vector<int> order = visiting_order(std::array{to, from});
  const Layout to_line(to, order), from_line(from, order);
  const int64_t bytes = dtype_bytes(to.dtype);
  int64_t count = kMostBytes / bytes;
  while (count > 1 && !(has_words(to_line, to, count) && has_words(from_line, from, count))) count /= 2;
  MovePlan plan;
  plan.word_bytes = count * bytes;
  plan.words = to.elements() / count;
  plan.to = in_words(to_line, count);
  plan.from = in_words(from_line, count);
  return plan;
}

}  // namespace sg::cpu
