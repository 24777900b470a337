// A convolution as a product by offsets: each place of the target is a sum over channels and taps of the source's
// elements at place + offset in planes. With a stride, the elements that places see through one tap are apart: each
// plane holds those with one remainder, contiguously, with zeros for elements outside the source.
#pragma once

#include <vector>

#include "librun/cpu/convolution.h"

namespace sg::cpu {

struct ConvolutionAxis {
  struct Tap {
    int64_t window;  // index of the place in the window
    int64_t plane, offset;
  };
  int64_t places = 0;  // of the target: its elements first, first + step, ...
  int64_t first = 0, step = 1;
  int64_t source_step = 1;       // elements of the source between adjacent positions of a plane
  std::vector<int64_t> origins;  // by plane: the element at position 0, possibly outside the source
  std::vector<Tap> taps;
  int64_t reach = 0;  // the largest offset

  int64_t planes() const { return static_cast<int64_t>(origins.size()); }
};

// Gives each tap a plane of its own, which holds just what places see through it.
void part_taps(ConvolutionAxis* axis);

// Targets that see the same places of the same planes, each with its own weights: a stride causes several for an
// input's gradient. An output has one.
struct ConvolutionTargets {
  struct Variant {
    std::array<int64_t, 3> first;
    std::vector<int64_t> windows;  // for each tap of axes 0, 1 and 2: its place in the whole window
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
