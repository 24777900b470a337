// What places see in a convolution, tap by tap: those of an output the input below their windows, those of an input the
// output places whose windows they are below. Places of one kind see the same, counted from a place of their own.
#pragma once

#include <span>
#include <vector>

#include "librun/cpu/convolution.h"

namespace sg::cpu {

struct AxisSight {
  struct Tap {
    int64_t window, at;  // place of the window; of the source, from the base on
    bool operator==(const Tap&) const = default;
  };
  std::vector<int64_t> base;  // of each place of the target
  std::vector<int64_t> kind;
  std::vector<std::vector<Tap>> kinds;  // taps in the order of the window

  int64_t places() const { return static_cast<int64_t>(base.size()); }
  // The places of the source that places [begin, end) of the target see: the first, and one past the last.
  std::array<int64_t, 2> seen(int64_t begin, int64_t end) const;
};

using Sight = std::array<AxisSight, 3>;
Sight output_sight(const ConvolutionGeometry& g);
Sight input_sight(const ConvolutionGeometry& g);

// The taps of all three axes together, where source places lie `pitch` apart along each axis.
class SightTaps {
 public:
  struct Tap {
    int32_t window, at;
  };
  SightTaps(const Sight& sight, const std::array<int64_t, 3>& window, const std::array<int64_t, 3>& pitch);

  // Of the kinds along the last axis, for kinds of the first two.
  const std::span<const Tap>* of(int64_t kind0, int64_t kind1) const {
    return lists_.data() + (kind0 * kinds_[1] + kind1) * kinds_[2];
  }

 private:
  std::array<int64_t, 3> kinds_;
  std::vector<Tap> taps_;
  std::vector<std::span<const Tap>> lists_;
};

}  // namespace sg::cpu
