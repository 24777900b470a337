// Arithmetic on sizes of a file that may say anything: nothing, or the largest number, where it overflows.
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

// Of numbers that are not negative.
inline int64_t saturating_add(int64_t a, int64_t b) { return checked_add(a, b).value_or(INT64_MAX); }

}  // namespace sg
