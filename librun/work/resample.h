// Resampling one axis (any_device/resample.h): [outer, in, inner] to [outer, out, inner].
#pragma once

#include "librun/work/work.h"

namespace sg::work {

// Weighted sums of taps, in double.
struct Resample {
  static constexpr const char* kName = "work_resample";
  const double* from;
  double* to;
  const int64_t *begin, *index;
  const double* weight;
  int64_t in, out, inner;

  SG_INLINE void operator()(int64_t i) const {
    const int64_t position = i / inner % out;
    const double* line = from + i / inner / out * in * inner + i % inner;
    double sum = 0;
    for (int64_t t = begin[position]; t < begin[position + 1]; ++t) sum += weight[t] * line[index[t] * inner];
    to[i] = sum;
  }
};

// Copies one element of `size` bytes for each output element of up to three axes, from the position that the axes'
// lists give; -1 = zero.
struct Pick {
  static constexpr const char* kName = "work_pick";
  const unsigned char* from;
  unsigned char* to;
  int64_t size;
  int64_t in[3], out[3];    // axes from the outermost; missing ones have size 1
  const int64_t* place[3];  // null: a missing axis

  template <class T>
  SG_INLINE void one(int64_t i) const {
    int64_t rest = i, offset = 0, step = 1;
    bool inside = true;
    for (int axis = 2; axis >= 0; --axis) {
      const int64_t at = place[axis] ? place[axis][rest % out[axis]] : 0;
      rest /= out[axis];
      inside = inside && at >= 0;
      offset += at * step;
      step *= in[axis];
    }
    T none{};
    reinterpret_cast<T*>(to)[i] = inside ? reinterpret_cast<const T*>(from)[rest * step + offset] : none;
  }
  struct Pair {
    uint64_t low, high;
  };
  SG_INLINE void operator()(int64_t i) const {
    switch (size) {
      case 1: return one<uint8_t>(i);
      case 2: return one<uint16_t>(i);
      case 4: return one<uint32_t>(i);
      case 8: return one<uint64_t>(i);
      default: return one<Pair>(i);
    }
  }
};

// Byte images: rounds to the nearest integer in [0, 255].
struct RoundToByte {
  static constexpr const char* kName = "work_round_to_byte";
  double* x;
  SG_INLINE void operator()(int64_t i) const {
    const double y = __builtin_floor(x[i] + 0.5);
    x[i] = y < 0 ? 0 : y > 255 ? 255 : y;
  }
};

}  // namespace sg::work
