// Which pixels take part in a sample between pixels: for places of a grid, by interpolation and padding.
//
// Places are computed in the element type (halves: float), as PyTorch does: which pixels are neighbours, and whether a
// place lies outside, hangs on the rounding. Weights are doubles.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace sg::cpu::grid {

enum Mode : int64_t { kLinear = 0, kNearest = 1, kCubic = 2 };
enum Padding : int64_t { kZeros = 0, kBorder = 1, kReflection = 2 };

// Places side by side that are worked out together: loops over them run on vectors.
constexpr int64_t kRun = 32;

template <class C>
struct Sampler {
  int axes = 2;
  int64_t mode = 0, padding = 0;
  bool aligned = false;
  std::array<int64_t, 3> size{1, 1, 1};  // of a plane, by axis of the input
  int64_t plane = 1, places = 1;         // elements of a plane; places of the grid a batch entry
};

// Pixels that take part in samples: where they lie (-1: outside), weights, the weights' slopes along each axis.
struct Neighbour {
  int64_t at[kRun];
  double weight[kRun], slope[3][kRun];
};

// Up to 16 of them: 2 or 4 an axis.
struct Neighbours {
  Neighbour list[16];
  size_t count;
};

// `grid`: the numbers of `count` places, x (the last axis) first.
template <class C>
void find_neighbours(const Sampler<C>& s, const C* grid, int64_t count, Neighbours* near);

extern template void find_neighbours(const Sampler<float>&, const float*, int64_t, Neighbours*);
extern template void find_neighbours(const Sampler<double>&, const double*, int64_t, Neighbours*);

}  // namespace sg::cpu::grid
