// A convolution as a product by offsets: a place of the target is a sum over channels and taps of what lies at place +
// offset in planes of the source. With a stride the elements that places see through one tap lie apart: each plane has
// those of one remainder, side by side, and what is outside of the source as zeros.
#pragma once

#include <vector>

#include "librun/cpu/convolution.h"

namespace sg::cpu {

struct ConvolutionAxis {
  struct Tap {
    int64_t window;  // which place of the window it is
    int64_t plane, offset;
  };
  int64_t places = 0;  // of the target: its elements first, first + step, ...
  int64_t first = 0, step = 1;
  int64_t source_step = 1;       // elements of the source from one position of a plane to the next
  std::vector<int64_t> origins;  // of each plane: the element at position 0, maybe outside of the source
  std::vector<Tap> taps;
  int64_t reach = 0;  // the largest offset

  int64_t planes() const { return static_cast<int64_t>(origins.size()); }
};

// Targets that see the same places of the same planes, each with weights of its own: what a stride makes of an input's
// gradient. Of an output there is one.
struct ConvolutionTargets {
  struct Variant {
    std::array<int64_t, 3> first;
    std::vector<int64_t> windows;  // places of the whole window, for each tap of axis 0, 1 and 2
    bool is_whole = false;         // they are 0, 1, 2, ...
  };
  std::array<ConvolutionAxis, 3> axes;
  std::vector<Variant> variants;

  int64_t places() const { return axes[0].places * axes[1].places * axes[2].places; }
  int64_t taps() const { return static_cast<int64_t>(axes[0].taps.size() * axes[1].taps.size() * axes[2].taps.size()); }
};

// The target is the output, the source what windows look at.
ConvolutionTargets output_targets(const ConvolutionGeometry& g);

// The target is what windows look at, the source the output or its gradient. Elements that no window sees are in none.
std::vector<ConvolutionTargets> input_targets(const ConvolutionGeometry& g);

}  // namespace sg::cpu
