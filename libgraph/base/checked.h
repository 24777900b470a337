// Arithmetic on whole numbers of a file that may say anything: nothing, or the largest number, where it overflows; and
// Python's // and %, which round towards minus infinity.
#pragma once

#include <cstdint>
#include <optional>

namespace sg {

inline std::optional<int64_t> checked_add(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::nullopt : std::optional(sum);
}

inline std::optional<int64_t> checked_mul(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::nullopt : std::optional(product);
}

// base ** power.
inline std::optional<int64_t> checked_pow(int64_t base, uint64_t power) {
  int64_t result = 1;
  while (power != 0) {
    if ((power & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return std::nullopt;
    power >>= 1;
    if (power != 0 && __builtin_mul_overflow(base, base, &base)) return std::nullopt;
  }
  return result;
}

// Whether a / b is a number, and one of 64 bits.
constexpr bool has_quotient(int64_t a, int64_t b) { return b != 0 && !(a == INT64_MIN && b == -1); }

// a // b. REQUIRES: has_quotient(a, b)
constexpr int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

// a % b, of b's sign. REQUIRES: has_quotient(a, b)
constexpr int64_t floor_mod(int64_t a, int64_t b) {
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// Of numbers that are not negative.
inline int64_t saturating_add(int64_t a, int64_t b) { return checked_add(a, b).value_or(INT64_MAX); }

}  // namespace sg
