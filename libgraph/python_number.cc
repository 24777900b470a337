#include "libgraph/python_number.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <compare>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "libgraph/base/checked.h"

namespace sg {
namespace {

std::optional<int64_t> shift_left(int64_t a, int64_t b) {
  if (a == 0 && b >= 0) return 0;
  int64_t out;
  if (b < 0 || b > 62 || __builtin_mul_overflow(a, int64_t{1} << b, &out)) return std::nullopt;
  return out;
}

// REQUIRES for "pow": b >= 0
std::optional<int64_t> whole(std::string_view op, int64_t a, int64_t b) {
  int64_t out;
  if (op == "add") return __builtin_add_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  if (op == "sub") return __builtin_sub_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  if (op == "mul") return __builtin_mul_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  if (op == "floordiv") return has_quotient(a, b) ? std::optional(floor_div(a, b)) : std::nullopt;
  if (op == "mod" && b == -1) return 0;  // of -2^63 too, which has no quotient
  if (op == "mod") return b == 0 ? std::nullopt : std::optional(floor_mod(a, b));
  if (op == "pow") return checked_pow(a, static_cast<uint64_t>(b));
  if (op == "and_") return a & b;
  if (op == "or_") return a | b;
  if (op == "xor") return a ^ b;
  if (op == "lshift") return shift_left(a, b);
  if (op == "rshift") return b < 0 ? std::nullopt : std::optional(a >> std::min<int64_t>(b, 63));
  return std::nullopt;
}

struct Division {
  double quotient, rest;  // a // b and a % b
};

// As CPython computes it, whose rests are exact, with the sign of b: 1.0 // 0.1 is 9, -1.0 // inf is -1.
Division divide(double a, double b) {
  double rest = std::fmod(a, b), quotient = (a - rest) / b;
  if (rest == 0) rest = std::copysign(0.0, b);
  else if ((rest < 0) != (b < 0)) rest += b, quotient -= 1;
  if (quotient == 0) return {std::copysign(0.0, a / b), rest};
  const double whole = std::floor(quotient);
  return {quotient - whole > 0.5 ? whole + 1 : whole, rest};
}

// None where Python raises an error or gives a complex number.
std::optional<double> power(double base, double exponent) {
  const double out = std::pow(base, exponent);
  const bool finite = std::isfinite(base) && std::isfinite(exponent);
  return finite && !std::isfinite(out) ? std::nullopt : std::optional(out);
}

std::optional<double> real(std::string_view op, double a, double b) {
  if (op == "add") return a + b;
  if (op == "sub") return a - b;
  if (op == "mul") return a * b;
  if (op == "truediv") return b == 0 ? std::nullopt : std::optional(a / b);
  if (op == "floordiv") return b == 0 ? std::nullopt : std::optional(divide(a, b).quotient);
  if (op == "mod") return b == 0 ? std::nullopt : std::optional(divide(a, b).rest);
  if (op == "pow") return power(a, b);
  return std::nullopt;
}

// A function of one number, as in Python's math module; none where Python raises an error.
std::optional<double> function(std::string_view op, double a) {
  using Function = double (*)(double);
  static constexpr std::pair<std::string_view, Function> kFunctions[] = {
      {"sym_sqrt", std::sqrt}, {"sym_log2", std::log2}, {"sym_sin", std::sin},   {"sym_cos", std::cos},
      {"sym_tan", std::tan},   {"sym_asin", std::asin}, {"sym_acos", std::acos}, {"sym_atan", std::atan},
      {"sym_sinh", std::sinh}, {"sym_cosh", std::cosh}, {"sym_tanh", std::tanh}};
  for (const auto& [name, call] : kFunctions) {
    if (name != op) continue;
    double out = call(a);
    return std::isfinite(a) && !std::isfinite(out) ? std::nullopt : std::optional(out);
  }
  return std::nullopt;
}

bool is_rounding(std::string_view op) {
  return op == "floor" || op == "ceil" || op == "trunc" || op == "round" || op == "sym_int";
}

// A float as an integer. nearbyint rounds halves to even, as Python's round does.
std::optional<int64_t> rounded(std::string_view op, double a) {
  double out = op == "floor"   ? std::floor(a)
               : op == "ceil"  ? std::ceil(a)
               : op == "round" ? std::nearbyint(a)
                               : std::trunc(a);
  constexpr double kEnd = 9223372036854775808.0;
  return out >= -kEnd && out < kEnd ? std::optional(static_cast<int64_t>(out)) : std::nullopt;
}

// Python's round(a, digits): rounds the exact value in decimal, as printf does.
std::optional<double> rounded_to(double a, int64_t digits) {
  constexpr int64_t kMostDigits = 330;  // a double has no digits beyond this
  if (!std::isfinite(a) || digits > kMostDigits) return a;
  if (digits < -kMostDigits) return a * 0;
  char text[1024];
  if (digits < 0) {
    double unit = std::pow(10.0, static_cast<double>(-digits));
    double out = std::isfinite(unit) ? std::nearbyint(a / unit) * unit : a * 0;
    return std::isfinite(out) ? std::optional(out) : std::nullopt;
  }
  std::snprintf(text, sizeof text, "%.*f", static_cast<int>(digits), a);
  double out = std::strtod(text, nullptr);
  return std::isfinite(out) ? std::optional(out) : std::nullopt;
}

// Python's round(a, digits) of an integer: unchanged for digits >= 0; otherwise halves go to even.
std::optional<int64_t> rounded_to(int64_t a, int64_t digits) {
  if (digits >= 0) return a;
  constexpr int64_t kHalf = 5'000'000'000'000'000'000;  // of 10^19, which is no i64
  if (digits == -19 && (a > kHalf || a < -kHalf)) return std::nullopt;
  if (digits < -18) return 0;
  int64_t unit = 1, out;
  for (int64_t i = digits; i < 0; ++i) unit *= 10;
  int64_t rest = floor_mod(a, unit);
  bool is_odd = floor_div(a, unit) % 2 != 0;
  bool is_up = rest > unit - rest || (rest == unit - rest && is_odd);
  bool fails = is_up ? __builtin_add_overflow(a, unit - rest, &out) : __builtin_sub_overflow(a, rest, &out);
  return fails ? std::nullopt : std::optional(out);
}

// Exact: no whole number is rounded to a float.
std::partial_ordering order(int64_t a, double b) {
  constexpr double kEnd = 9223372036854775808.0;
  if (std::isnan(b)) return std::partial_ordering::unordered;
  if (b >= kEnd || b < -kEnd) return b > 0 ? std::partial_ordering::less : std::partial_ordering::greater;
  const double whole = std::trunc(b);
  if (a != static_cast<int64_t>(whole)) return a <=> static_cast<int64_t>(whole);
  return whole <=> b;
}

std::partial_ordering order(Scalar a, Scalar b) {
  if (a.is_integral()) return b.is_integral() ? std::partial_ordering(a.i <=> b.i) : order(a.i, b.re);
  return b.is_integral() ? 0 <=> order(b.i, a.re) : a.re <=> b.re;
}

std::optional<bool> compare(std::string_view op, std::partial_ordering order) {
  if (op == "eq") return order == 0;
  if (op == "ne") return order != 0;
  if (op == "lt") return order < 0;
  if (op == "le") return order <= 0;
  if (op == "gt") return order > 0;
  if (op == "ge") return order >= 0;
  return std::nullopt;
}

std::optional<Scalar> integer(std::optional<int64_t> value) {
  return value ? std::optional(Scalar::integer(*value)) : std::nullopt;
}

std::optional<Scalar> floating(std::optional<double> value) {
  return value ? std::optional(Scalar::floating(*value)) : std::nullopt;
}

// The first of the two, unless the second is beyond it. sym_max and sym_min make floats of whole numbers beside floats.
std::optional<Scalar> extreme(std::string_view op, Scalar a, Scalar b) {
  const bool most = op == "max" || op == "sym_max", least = op == "min" || op == "sym_min";
  if (!most && !least) return std::nullopt;
  const Scalar chosen = (most ? order(b, a) > 0 : order(b, a) < 0) ? b : a;
  if (a.is_integral() && b.is_integral()) return Scalar::integer(chosen.i);
  return op.starts_with("sym_") ? Scalar::floating(chosen.to_double()) : chosen;
}

// a / b, rounded once however large both are. REQUIRES: b != 0.
double quotient(int64_t a, int64_t b) {
  __extension__ typedef unsigned __int128 Wide128;
  const auto magnitude = [](int64_t v) { return v < 0 ? -static_cast<uint64_t>(v) : static_cast<uint64_t>(v); };
  const uint64_t above = magnitude(a), below = magnitude(b);
  const double sign = (a < 0) != (b < 0) ? -1 : 1;
  if (above == 0) return 0 * sign;
  const int shift = 63 + std::countl_zero(above);
  const Wide128 shifted = static_cast<Wide128>(above) << shift, digits = shifted / below;
  const Wide128 odd = shifted % below != 0;  // in place of all further digits
  return std::ldexp(static_cast<double>(digits | odd), -shift) * sign;
}

std::optional<Scalar> two(std::string_view op, Scalar a, Scalar b) {
  bool integral = a.is_integral() && b.is_integral();
  bool of_truths = a.kind == Scalar::Kind::boolean && b.kind == Scalar::Kind::boolean;
  if (of_truths && (op == "and_" || op == "or_" || op == "xor")) return Scalar::boolean(*whole(op, a.i, b.i) != 0);
  if (auto answer = compare(op, order(a, b))) return Scalar::boolean(*answer);
  if (auto chosen = extreme(op, a, b)) return chosen;
  if (integral && op == "truediv") return floating(b.i == 0 ? std::nullopt : std::optional(quotient(a.i, b.i)));
  bool whole_result = integral && !(op == "pow" && b.i < 0);
  return whole_result ? integer(whole(op, a.i, b.i)) : floating(real(op, a.to_double(), b.to_double()));
}

std::optional<Scalar> negative(Scalar a) {
  if (!a.is_integral()) return Scalar::floating(-a.re);
  int64_t out;
  return __builtin_sub_overflow(int64_t{0}, a.i, &out) ? std::nullopt : integer(out);
}

std::optional<Scalar> one(std::string_view op, Scalar a) {
  if (op == "neg") return negative(a);
  if (op == "not_" || op == "sym_not") return Scalar::boolean(a.to_double() == 0);
  if (op == "sym_float") return Scalar::floating(a.to_double());
  if (op == "pos") return a.is_integral() ? Scalar::integer(a.i) : a;
  if (op == "abs" && !a.is_integral()) return Scalar::floating(std::fabs(a.re));
  if (op == "abs") return a.i == INT64_MIN ? std::nullopt : integer(std::abs(a.i));
  if (is_rounding(op)) return integer(a.is_integral() ? a.i : rounded(op, a.re));
  return floating(function(op, a.to_double()));
}

std::optional<Scalar> sum(std::span<const Scalar> given) {
  Scalar total = Scalar::integer(0);
  for (const Scalar& s : given) {
    if (!total.is_integral() || !s.is_integral()) total = Scalar::floating(total.to_double() + s.to_double());
    else if (__builtin_add_overflow(total.i, s.i, &total.i)) return std::nullopt;
  }
  return total;
}

}  // namespace

std::optional<Scalar> python_number(std::string_view op, std::span<const Scalar> given) {
  if (op == "sym_sum") return sum(given);
  switch (given.size()) {
    case 1: return one(op, given[0]);
    case 2:
      if (op != "round") return two(op, given[0], given[1]);
      return given[0].is_integral() ? integer(rounded_to(given[0].i, given[1].to_int()))
                                    : floating(rounded_to(given[0].re, given[1].to_int()));
    case 3: return op == "sym_ite" ? std::optional(given[0].to_double() != 0 ? given[1] : given[2]) : std::nullopt;
    default: return std::nullopt;
  }
}

}  // namespace sg
