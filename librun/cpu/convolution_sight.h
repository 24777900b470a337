// What places see in a convolution, tap by tap: places of an output see the input within their windows; places of an
// input see the output places whose windows contain them. Places of one kind see the same, relative to a base.
#pragma once

#include <span>
#include <vector>

#include "librun/cpu/convolution.h"

namespace sg::cpu {

struct AxisSight {
  struct Tap {
    int64_t window, at;  // index in the window; position in the source, relative to the base
    bool operator==(const Tap&) const = default;
  };
  std::vector<int64_t> base;  // by place of the target
  std::vector<int64_t> kind;
  std::vector<std::vector<Tap>> kinds;  // taps in window order

  int64_t places() const { return static_cast<int64_t>(base.size()); }
  // The places of the source that places [begin, end) of the target see: the first, and one past the last.
  std::array<int64_t, 2> seen(int64_t begin, int64_t end) const;
};

using Sight = std::array<AxisSight, 3>;
Sight output_sight(const ConvolutionGeometry& g);
Sight input_sight(const ConvolutionGeometry& g);

// The combined taps of all three axes, for source places `pitch` apart along each axis.
class SightTaps {
 public:
  struct Tap {
    int32_t window, at;
  };
  SightTaps(const Sight& sight, const std::array<int64_t, 3>& window, const std::array<int64_t, 3>& pitch);

  // By kind along the last axis, for given kinds of the first two.
  const std::span<const Tap>* of(int64_t kind0, int64_t kind1) const {
    return lists_.data() + (kind0 * kinds_[1] + kind1) * kinds_[2];
  }

 private:
  std::array<int64_t, 3> kinds_;
  std::vector<Tap> taps_;
  std::vector<std::span<const Tap>> lists_;
};

}  // namespace sg::cpu
