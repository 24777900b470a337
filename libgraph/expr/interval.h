// Inclusive ranges of integers, open at either end, with the arithmetic of expressions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace sg {

// [min, max]. INT64_MIN as min and INT64_MAX as max mean unbounded; results beyond 64 bits saturate to them.
struct Interval {
  static constexpr int64_t kLowest = INT64_MIN;
  static constexpr int64_t kHighest = INT64_MAX;
  int64_t min = kLowest;
  int64_t max = kHighest;

  static Interval of(int64_t value) { return {value, value}; }
  static Interval of(std::optional<int64_t> min, std::optional<int64_t> max) {
    return {min.value_or(kLowest), max.value_or(kHighest)};
  }
  bool has_min() const { return min != kLowest; }
  bool has_max() const { return max != kHighest; }
  bool is_single() const { return min == max && has_min() && has_max(); }
  bool contains(int64_t v) const { return v >= min && v <= max; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

Interval hull(Interval a, Interval b);
Interval intersection(Interval a, Interval b);  // may come out empty: min > max
Interval add(Interval a, Interval b);
Interval mul(Interval a, Interval b);
Interval scaled(Interval a, int64_t by);
Interval pow(Interval a, uint32_t power);
Interval floordiv(Interval a, Interval b);  // of a // b for all b in the range but zero
Interval mod(Interval a, Interval b);
Interval min(Interval a, Interval b);
Interval max(Interval a, Interval b);
std::string print(Interval a);  // "[0, inf]"

}  // namespace sg
