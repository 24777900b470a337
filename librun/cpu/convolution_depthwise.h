// Convolutions of one input channel and few output channels a group, of which matrices would be mostly packing: each
// offset of the window is one pass over a plane.
//
// A plane of input lies padded, and split by the stride: places side by side see at one offset what lies side by side.
// Where lines are short, places lie as far apart as what they see, and a pass runs over all lines of several entries.
#pragma once

#include <vector>

#include "librun/cpu/convolution.h"

namespace sg::cpu {

// Whether it is one, and its padded planes are not much larger than what they hold. Strict numerics have chains of
// their own.
bool is_depthwise(const KernelCall& call, const ConvolutionGeometry& g);

// The three products (convolution.cc). REQUIRES: is_depthwise
template <class T>
class Depthwise {
 public:
  Depthwise(KernelCall& call, const ConvolutionGeometry& g);
  void output(const Image& x, const Tensor& weight, const Tensor& bias, const Image& y);
  void input(const Image& y, const Tensor& weight, const Tensor& bias, const Image& x);
  void weight(const Image& x, const Image& y, const Tensor& out);

 private:
  using Three = std::array<int64_t, 3>;
  struct Space {  // a plane of places, one of input, a line of either
    T *places, *padded, *line;
  };
  template <class Fn>
  void each(int64_t tasks, const Fn& fn);
  template <class Fn>
  void each_run(const Image& x, int64_t entry, int64_t channel, const Fn& fn) const;
  template <class Fn>
  void each_line(const Image& y, int64_t entry, int64_t channel, const Fn& fn) const;
  template <class Fn>
  void each_slice(T* places, T* seen, int64_t entries, bool at_once, const Fn& fn) const;
  void read_planes(const Image& x, int64_t first, int64_t entries, int64_t channel, T* to) const;
  void read_places(const Image& y, int64_t first, int64_t entries, int64_t channel, T* to) const;
  double products(const Space& s, int64_t offset, int64_t entries, bool at_once) const;
  int64_t place_of(const Three& at) const;
  void read_padded(const Image& x, int64_t entry, int64_t channel, T* to) const;
  void write_padded(const T* from, T bias, const Image& x, int64_t entry, int64_t channel, T* line) const;
  T number_at(const Tensor& t, int64_t i) const;
  int64_t blocks() const { return (g_.batch + entries_ - 1) / entries_; }
  int64_t padded_size() const { return entries_ * parts_ * plane_; }
  int64_t places_size() const { return one_run_ ? entries_ * plane_ : g_.places(); }
  // From the first place of `entries` to the last. REQUIRES: one_run_
  int64_t run_of(int64_t entries) const {
    return (entries - 1) * plane_ + (g_.out[0] - 1) * slice_ + (g_.out[1] - 1) * pitch_ + g_.out[2];
  }

  KernelCall& call_;
  const ConvolutionGeometry& g_;
  Three split_, part_;  // parts of the padded plane along each axis, of every stride-th element; sizes of one
  int64_t plane_ = 0;   // elements of a part of one entry
  int64_t parts_ = 0;
  bool one_run_ = false;           // lines of places lie as those of a part do, so that one run goes over all of them
  int64_t entries_ = 1;            // done together
  int64_t pitch_ = 0, slice_ = 0;  // elements from a line of places to the next, from a plane of two axes to the next
  std::vector<int64_t> offsets_;   // by offset in the window: what the first place sees
};

extern template class Depthwise<float>;
extern template class Depthwise<double>;

}  // namespace sg::cpu
