// Indices from data are never trusted. The first one out of range, in row-major order, becomes the run's error.
#pragma once

#include <atomic>
#include <limits>
#include <string>

#include "librun/kernel.h"

namespace sg::cpu {

class IndexCheck {
 public:
  // `index` counted from the front, or -1 if it is out of range; `position` is its position in the tensor of indices.
  int64_t wrap(int64_t index, int64_t size, int64_t position) {
    int64_t wrapped = index < 0 ? index + size : index;
    if (wrapped >= 0 && wrapped < size) [[likely]]
      return wrapped;
    return report(position), -1;
  }
  // The same for ops in which negative indices are errors.
  int64_t hold(int64_t index, int64_t size, int64_t position) {
    if (index >= 0 && index < size) [[likely]]
      return index;
    return report(position), -1;
  }
  bool ok() const { return first_.load(std::memory_order_relaxed) == kNone; }
  int64_t first() const { return first_.load(std::memory_order_relaxed); }

  // `indices`: contiguous i64; `size`: of the axis that they index.
  Status status(const KernelCall& call, const int64_t* indices, int64_t size) const {
    if (ok()) return ok_status();
    return call.fail("index " + std::to_string(indices[first()]) + " at position " + std::to_string(first()) +
                     " is out of range for size " + std::to_string(size));
  }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  void report(int64_t position) {
    int64_t seen = first_.load(std::memory_order_relaxed);
    while (position < seen && !first_.compare_exchange_weak(seen, position, std::memory_order_relaxed)) {
    }
  }
  std::atomic<int64_t> first_{kNone};
};

}  // namespace sg::cpu
