// Strided tensors as kernels see them, and their elements as numbers.
//
// A kernel accepts any dtype and any strides: `read` and `write` dispatch on the view's dtype, which is the same for
// all lanes. Half precision is rounded to nearest even, as on the CPU (element.h).
#pragma once

#include "librun/cuda/kernels/block.h"
#include "librun/work/divide.h"
#include "librun/work/eighths.h"
#include "librun/work/halves.h"
#include "librun/work/work.h"

namespace sg::cuda {

inline constexpr int kMaxAxes = 12;  // kMaxRank of tensor.h

// clang-format off
enum class Element : uint8_t {
  f64, f32, f16, bf16, f8e4m3fn, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, i64, i32, i16, i8, u8, boolean, c64, c128
};
// clang-format on

struct View {
  unsigned char* data = nullptr;
  Element element = Element::f32;
  bool conjugate = false;
  int32_t axes = 0;
  int64_t count = 0;  // elements
  int64_t shape[kMaxAxes] = {}, stride[kMaxAxes] = {};
};

// The offset of element `i`, in row-major order over the axes [first, end). The outermost axis needs no remainder, so
// an axis merged by the host (device.h) needs no division.
SG_FN int64_t offset_over(const View& v, int first, int end, int64_t i) {
  if (first >= end) return 0;
  int64_t offset = 0;
  for (int axis = end - 1; axis > first; --axis) offset += work::take_remainder(&i, v.shape[axis]) * v.stride[axis];
  return offset + i * v.stride[first];
}
SG_FN int64_t offset_of(const View& v, int64_t i) { return offset_over(v, 0, v.axes, i); }
// Element `i` of a row: rows are numbered over all axes but the last.
SG_FN int64_t at_row(const View& v, int64_t row, int64_t i) {
  return offset_over(v, 0, v.axes - 1, row) + i * v.stride[v.axes - 1];
}

using work::from_brain;
using work::from_half;
using work::number;
using work::to_half;
using work::word;

#ifdef __CUDA_ARCH__
// work::to_brain by the device's instruction, which rounds the same but has one NaN.
SG_FN uint16_t to_brain(float x) {
  uint16_t rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
  const uint32_t u = word(x), nan = (u >> 16) | ((u & 0x7F0000u) == 0 ? 0x40u : 0);
  return x != x ? static_cast<uint16_t>(nan) : rounded;
}
#else
using work::to_brain;
#endif

template <class T>
SG_FN T& at(const View& v, int64_t offset) {
  return reinterpret_cast<T*>(v.data)[offset];
}

// Float8 of any format.
SG_FN float from_eighth(Element e, uint8_t bits) {
  switch (e) {
    case Element::f8e4m3fn: return work::from_eighth<work::Eighth::e4m3fn>(bits);
    case Element::f8e5m2: return work::from_eighth<work::Eighth::e5m2>(bits);
    case Element::f8e4m3fnuz: return work::from_eighth<work::Eighth::e4m3fnuz>(bits);
    default: return work::from_eighth<work::Eighth::e5m2fnuz>(bits);
  }
}
SG_FN uint8_t to_eighth(Element e, float x) {
  switch (e) {
    case Element::f8e4m3fn: return work::to_eighth<work::Eighth::e4m3fn>(x);
    case Element::f8e5m2: return work::to_eighth<work::Eighth::e5m2>(x);
    case Element::f8e4m3fnuz: return work::to_eighth<work::Eighth::e4m3fnuz>(x);
    default: return work::to_eighth<work::Eighth::e5m2fnuz>(x);
  }
}

// Floats are truncated to integers. One outside the range of int64 becomes INT64_MIN, as on the CPU; C++ leaves this
// undefined, and a device would saturate.
template <class T>
SG_FN int64_t whole_of(T x) {
  return static_cast<int64_t>(x);
}
SG_FN int64_t whole_of(float x) { return x >= -0x1p63f && x < 0x1p63f ? static_cast<int64_t>(x) : INT64_MIN; }
SG_FN int64_t whole_of(double x) { return x >= -0x1p63 && x < 0x1p63 ? static_cast<int64_t>(x) : INT64_MIN; }

// The element as an integer; floats are truncated.
SG_FN int64_t read_whole(const View& v, int64_t offset) {
  switch (v.element) {
    case Element::f64: return whole_of(at<double>(v, offset));
    case Element::f32: return whole_of(at<float>(v, offset));
    case Element::f16: return whole_of(from_half(at<uint16_t>(v, offset)));
    case Element::bf16: return whole_of(from_brain(at<uint16_t>(v, offset)));
    case Element::f8e4m3fn:
    case Element::f8e5m2:
    case Element::f8e4m3fnuz:
    case Element::f8e5m2fnuz: return whole_of(from_eighth(v.element, at<uint8_t>(v, offset)));
    case Element::i64: return at<int64_t>(v, offset);
    case Element::i32: return at<int32_t>(v, offset);
    case Element::i16: return at<int16_t>(v, offset);
    case Element::i8: return at<int8_t>(v, offset);
    case Element::u8: return at<uint8_t>(v, offset);
    case Element::boolean: return at<uint8_t>(v, offset) != 0;
    case Element::c64: return whole_of(at<float>(v, 2 * offset));
    case Element::c128: return whole_of(at<double>(v, 2 * offset));
  }
  return 0;
}

// The element as C, float or double; of complex numbers the real part.
template <class C>
SG_FN C read(const View& v, int64_t offset) {
  switch (v.element) {
    case Element::f64: return static_cast<C>(at<double>(v, offset));
    case Element::f32: return at<float>(v, offset);
    case Element::f16: return from_half(at<uint16_t>(v, offset));
    case Element::bf16: return from_brain(at<uint16_t>(v, offset));
    case Element::f8e4m3fn:
    case Element::f8e5m2:
    case Element::f8e4m3fnuz:
    case Element::f8e5m2fnuz: return from_eighth(v.element, at<uint8_t>(v, offset));
    case Element::c64: return at<float>(v, 2 * offset);
    case Element::c128: return static_cast<C>(at<double>(v, 2 * offset));
    default: return static_cast<C>(read_whole(v, offset));
  }
}

SG_FN void write_whole(const View& v, int64_t offset, int64_t x) {
  switch (v.element) {
    case Element::f64: at<double>(v, offset) = static_cast<double>(x); break;
    case Element::f32: at<float>(v, offset) = static_cast<float>(x); break;
    case Element::f16: at<uint16_t>(v, offset) = to_half(static_cast<float>(x)); break;
    case Element::bf16: at<uint16_t>(v, offset) = to_brain(static_cast<float>(x)); break;
    case Element::f8e4m3fn:
    case Element::f8e5m2:
    case Element::f8e4m3fnuz:
    case Element::f8e5m2fnuz: at<uint8_t>(v, offset) = to_eighth(v.element, static_cast<float>(x)); break;
    case Element::i64: at<int64_t>(v, offset) = x; break;
    case Element::i32: at<int32_t>(v, offset) = static_cast<int32_t>(x); break;
    case Element::i16: at<int16_t>(v, offset) = static_cast<int16_t>(x); break;
    case Element::i8: at<int8_t>(v, offset) = static_cast<int8_t>(x); break;
    case Element::u8: at<uint8_t>(v, offset) = static_cast<uint8_t>(x); break;
    case Element::boolean: at<uint8_t>(v, offset) = x != 0; break;
    case Element::c64: at<float>(v, 2 * offset) = static_cast<float>(x), at<float>(v, 2 * offset + 1) = 0; break;
    case Element::c128: at<double>(v, 2 * offset) = static_cast<double>(x), at<double>(v, 2 * offset + 1) = 0; break;
  }
}

template <class C>
SG_FN void write(const View& v, int64_t offset, C x) {
  switch (v.element) {
    case Element::f64: at<double>(v, offset) = x; break;
    case Element::f32: at<float>(v, offset) = static_cast<float>(x); break;
    case Element::f16: at<uint16_t>(v, offset) = to_half(static_cast<float>(x)); break;
    case Element::bf16: at<uint16_t>(v, offset) = to_brain(static_cast<float>(x)); break;
    case Element::f8e4m3fn:
    case Element::f8e5m2:
    case Element::f8e4m3fnuz:
    case Element::f8e5m2fnuz: at<uint8_t>(v, offset) = to_eighth(v.element, static_cast<float>(x)); break;
    case Element::boolean: at<uint8_t>(v, offset) = x != 0; break;
    case Element::c64: at<float>(v, 2 * offset) = static_cast<float>(x), at<float>(v, 2 * offset + 1) = 0; break;
    case Element::c128: at<double>(v, 2 * offset) = x, at<double>(v, 2 * offset + 1) = 0; break;
    default: write_whole(v, offset, whole_of(x));
  }
}

SG_FN bool is_complex(Element e) { return e == Element::c64 || e == Element::c128; }
SG_FN bool is_floating(Element e) { return e <= Element::f8e5m2fnuz; }

template <class C>
SG_FN C read_imaginary(const View& v, int64_t offset) {
  C im = v.element == Element::c64 ? static_cast<C>(at<float>(v, 2 * offset + 1))
                                   : static_cast<C>(at<double>(v, 2 * offset + 1));
  return v.conjugate ? -im : im;
}

template <class Word>
SG_FN void copy_word(const View& to, int64_t to_offset, const View& from, int64_t from_offset) {
  at<Word>(to, to_offset) = at<Word>(from, from_offset);
}

// Copies one element between views of one type bit by bit, including NaNs.
SG_FN void copy_bits(const View& to, int64_t to_offset, const View& from, int64_t from_offset) {
  switch (to.element) {
    case Element::f64:
    case Element::i64:
    case Element::c64: return copy_word<uint64_t>(to, to_offset, from, from_offset);
    case Element::f32:
    case Element::i32: return copy_word<uint32_t>(to, to_offset, from, from_offset);
    case Element::f16:
    case Element::bf16:
    case Element::i16: return copy_word<uint16_t>(to, to_offset, from, from_offset);
    case Element::c128:
      copy_word<uint64_t>(to, 2 * to_offset, from, 2 * from_offset);
      return copy_word<uint64_t>(to, 2 * to_offset + 1, from, 2 * from_offset + 1);
    default: return copy_word<uint8_t>(to, to_offset, from, from_offset);
  }
}

// Copies and converts one element from view to view.
SG_FN void copy_element(const View& to, int64_t to_offset, const View& from, int64_t from_offset) {
  if (from.element == to.element && from.conjugate == to.conjugate) return copy_bits(to, to_offset, from, from_offset);
  if (is_complex(from.element) && is_complex(to.element)) {
    double re = read<double>(from, from_offset), im = read_imaginary<double>(from, from_offset);
    if (to.conjugate) im = -im;
    if (to.element == Element::c64)
      at<float>(to, 2 * to_offset) = static_cast<float>(re), at<float>(to, 2 * to_offset + 1) = static_cast<float>(im);
    else at<double>(to, 2 * to_offset) = re, at<double>(to, 2 * to_offset + 1) = im;
  } else if (is_floating(from.element) || is_complex(from.element)) {
    write<double>(to, to_offset, read<double>(from, from_offset));
  } else {
    write_whole(to, to_offset, read_whole(from, from_offset));
  }
}

using work::Fault;
using work::Report;

}  // namespace sg::cuda
