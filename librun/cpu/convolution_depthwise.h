// Convolutions of one input channel and few output channels a group, of which matrices would be mostly packing: each
// offset of the window is one pass over a plane.
//
// A plane of input lies padded, and split by the stride: places side by side see at one offset what lies side by side.
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
  void each_slice(const Fn& fn) const;
  int64_t place_of(const Three& at) const;
  void read_padded(const Image& x, int64_t entry, int64_t channel, T* to) const;
  void write_padded(const T* from, T bias, const Image& x, int64_t entry, int64_t channel, T* line) const;
  T number_at(const Tensor& t, int64_t i) const;

  KernelCall& call_;
  const ConvolutionGeometry& g_;
  Three split_, part_;            // parts of the padded plane along each axis, of every stride-th element; sizes of one
  int64_t padded_ = 0;            // elements of all parts
  std::vector<int64_t> offsets_;  // by offset in the window: what the first place sees
};

extern template class Depthwise<float>;
extern template class Depthwise<double>;

}  // namespace sg::cpu
