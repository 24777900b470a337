// Scalar: a number that the host holds: an argument of an op, or the value of a symbolic scalar.
#pragma once

#include <complex>
#include <cstdint>

namespace sg {

struct Scalar {
  enum class Kind : uint8_t { integer, floating, boolean, complex };
  Kind kind = Kind::integer;
  int64_t i = 0;          // integer, boolean
  double re = 0, im = 0;  // floating, complex

  static Scalar integer(int64_t v) { return {Kind::integer, v, 0, 0}; }
  static Scalar boolean(bool v) { return {Kind::boolean, v, 0, 0}; }
  static Scalar floating(double v) { return {Kind::floating, 0, v, 0}; }
  static Scalar complex(double re, double im) { return {Kind::complex, 0, re, im}; }

  bool is_integral() const { return kind == Kind::integer || kind == Kind::boolean; }
  double to_double() const { return is_integral() ? static_cast<double>(i) : re; }
  int64_t to_int() const { return is_integral() ? i : static_cast<int64_t>(re); }
  std::complex<double> to_complex() const { return {to_double(), im}; }
};

}  // namespace sg
