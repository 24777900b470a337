// Which tensors share memory: for two tensors, and for one against many.
#pragma once

#include <algorithm>
#include <vector>

#include "librun/tensor.h"

namespace sg {

// Whether the byte ranges of both overlap, including gaps between their elements.
inline bool share_memory(const Tensor& a, const Tensor& b) {
  return a.data < b.data + extent_bytes(b) && b.data < a.data + extent_bytes(a);
}

class MemoryRanges {
 public:
  // REQUIRES: any two tensors are either in the same memory or in separate memory, like inputs.
  explicit MemoryRanges(const std::vector<Tensor>& tensors) {
    for (const Tensor& t : tensors) ranges_.push_back(range_of(t));
    std::ranges::sort(ranges_, {}, &Range::begin);
  }

  bool touch(const Tensor& t) const {
    const Range r = range_of(t);
    auto next = std::ranges::upper_bound(ranges_, r.begin, {}, &Range::end);
    return r.begin < r.end && next != ranges_.end() && next->begin < r.end;
  }

 private:
  struct Range {
    const std::byte *begin, *end;
  };
  static Range range_of(const Tensor& t) { return {t.data, t.data + extent_bytes(t)}; }

  std::vector<Range> ranges_;
};

}  // namespace sg
