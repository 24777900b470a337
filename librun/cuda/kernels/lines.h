// Evenly spaced numbers in memory, read and written as double; `number` returns them in their own type, for arithmetic
// in float.
//
// A Line<Raw> knows their type, so that a loop over it consists of loads and arithmetic: the type is dispatched once
// per kernel (with_type) instead of for each number. Line<AnyType> dispatches per number, and Scattered also computes
// each offset.
#pragma once

#include "librun/cuda/kernels/raw.h"

namespace sg::cuda {

template <class Raw>
struct Line {
  using Number = float;
  Raw* first = nullptr;
  int64_t step = 1;

  SG_FN Line(const View& v, int64_t offset, int64_t by) : first(reinterpret_cast<Raw*>(v.data) + offset), step(by) {}
  SG_FN Number number(int64_t i) const { return value_of(first[i * step]); }
  SG_FN double operator[](int64_t i) const { return static_cast<double>(number(i)); }
  SG_FN void put(int64_t i, double x) const { first[i * step] = stored_as<Raw>(static_cast<float>(x)); }
  SG_FN static bool is_double() { return false; }
};

struct AnyType {};

template <>
struct Line<AnyType> {
  using Number = double;
  const View& view;
  int64_t first, step;

  SG_FN Line(const View& v, int64_t offset, int64_t by) : view(v), first(offset), step(by) {}
  SG_FN Number number(int64_t i) const { return read<double>(view, first + i * step); }
  SG_FN double operator[](int64_t i) const { return number(i); }
  SG_FN void put(int64_t i, double x) const { write<double>(view, first + i * step, x); }
  SG_FN bool is_double() const { return view.element == Element::f64; }
};

// All numbers of a view in row-major order, with any layout.
struct Scattered {
  const View& view;

  SG_FN double operator[](int64_t i) const { return read<double>(view, offset_of(view, i)); }
  SG_FN void put(int64_t i, double x) const { write<double>(view, offset_of(view, i), x); }
};

// f(Raw()), or f(AnyType()) for less common types.
template <class F>
SG_FN void with_type(Element e, const F& f) {
  switch (e) {
    case Element::f32: return f(float());
    case Element::bf16: return f(Bf16());
    case Element::f16: return f(F16());
    default: return f(AnyType());
  }
}

// f(Raw(), Raw()) for two views of one type, or of f32 and half precision; otherwise f(AnyType(), AnyType()).
template <class F>
SG_FN void with_types(Element wide, Element narrow, const F& f) {
  if (wide == narrow) return with_type(wide, [&](auto raw) { f(raw, raw); });
  if (wide == Element::f32 && narrow == Element::bf16) return f(float(), Bf16());
  if (wide == Element::f32 && narrow == Element::f16) return f(float(), F16());
  f(AnyType(), AnyType());
}

// Row `row` along the last axis.
template <class Raw>
SG_FN Line<Raw> row_line(const View& v, int64_t row) {
  return Line<Raw>(v, at_row(v, row, 0), v.stride[v.axes - 1]);
}

// All numbers of a view with at most one axis, as merged by the host.
template <class Raw>
SG_FN Line<Raw> whole_line(const View& v) {
  return Line<Raw>(v, 0, v.axes == 0 ? 0 : v.stride[0]);
}
// Whether a view, possibly without data, is such a line of that type.
SG_FN bool is_line(const View& v, Element e) { return !v.data || (v.axes <= 1 && v.element == e); }

}  // namespace sg::cuda
