#include "libgraph/expr/interval.h"

#include "libgraph/base/checked.h"
#include "libgraph/expr/expr_builder.h"

namespace sg {

namespace {

constexpr int64_t kLowest = Interval::kLowest;
constexpr int64_t kHighest = Interval::kHighest;

bool is_infinite(int64_t v) { return v == kLowest || v == kHighest; }

int64_t clamp(Wide v) { return v < kLowest ? kLowest : v > kHighest ? kHighest : static_cast<int64_t>(v); }

// Product of interval ends: an infinite end times zero is zero, as the end is only approached.
int64_t product(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (is_infinite(a) || is_infinite(b)) return (a < 0) == (b < 0) ? kHighest : kLowest;
  return clamp(static_cast<Wide>(a) * b);
}

// The ends are asymmetric: as a max, kHighest means infinity; as a min, it is a number.
Interval negative(Interval a) {
  Interval r;
  if (a.has_max()) r.min = a.max == kLowest ? kHighest : -a.max;
  if (a.has_min()) r.max = -a.min;
  return r;
}

// a // b for b > 0; an infinite divisor makes it 0 or -1.
int64_t quotient(int64_t a, int64_t b) {
  if (b == kHighest) return a < 0 ? -1 : 0;
  return floor_div(a, b);
}

}  // namespace

Interval hull(Interval a, Interval b) { return {std::min(a.min, b.min), std::max(a.max, b.max)}; }
Interval intersection(Interval a, Interval b) { return {std::max(a.min, b.min), std::min(a.max, b.max)}; }
Interval min(Interval a, Interval b) { return {std::min(a.min, b.min), std::min(a.max, b.max)}; }
Interval max(Interval a, Interval b) { return {std::max(a.min, b.min), std::max(a.max, b.max)}; }

Interval add(Interval a, Interval b) {
  Interval r;
  if (a.has_min() && b.has_min()) r.min = clamp(static_cast<Wide>(a.min) + b.min);
  if (a.has_max() && b.has_max()) r.max = clamp(static_cast<Wide>(a.max) + b.max);
  return r;
}

Interval mul(Interval a, Interval b) {
  auto [low, high] =
      std::minmax({product(a.min, b.min), product(a.min, b.max), product(a.max, b.min), product(a.max, b.max)});
  return {low, std::max(high, kLowest + 1)};  // -kHighest is above kLowest
}

Interval scaled(Interval a, int64_t by) { return mul(a, Interval::of(by)); }

Interval pow(Interval a, uint32_t power) {
  Interval r = Interval::of(1), square = a;
  if (power % 2 == 0 && a.min < 0) square = a.max <= 0 ? negative(a) : Interval{0, hull(negative(a), a).max};
  for (uint32_t n = power; n != 0; n >>= 1) {
    if ((n & 1) != 0) r = mul(r, square);
    bool was_signed = square.min < 0;
    square = mul(square, square);
    if (was_signed) square.min = std::max<int64_t>(square.min, 0);
  }
  return r;
}

Interval floordiv(Interval a, Interval b) {
  if (b.min == 0) b.min = 1;
  if (b.max == 0) b.max = -1;
  if (b.min > b.max) return {};
  if (b.max < 0) return floordiv(negative(a), negative(b));
  if (b.min < 0) return hull(Interval::of(0), hull(a, negative(a)));  // divisor of either sign: |a // b| <= |a|
  Interval r;
  if (a.has_min()) r.min = quotient(a.min, a.min >= 0 ? b.max : b.min);
  if (a.has_max()) r.max = quotient(a.max, a.max >= 0 ? b.min : b.max);
  return r;
}

Interval mod(Interval a, Interval b) {
  if (b.min > 0 && a.min >= 0 && a.max < b.min) return a;
  Interval r;
  r.min = b.min >= 0 ? 0 : b.has_min() ? b.min + 1 : kLowest;
  r.max = b.max <= 0 ? 0 : b.has_max() ? b.max - 1 : kHighest;
  if (b.min >= 0 && a.min >= 0) r.max = std::min(r.max, a.max);
  return r;
}

std::string print(Interval a) {
  std::string low = a.has_min() ? std::to_string(a.min) : "-inf";
  return "[" + low + ", " + (a.has_max() ? std::to_string(a.max) : "inf") + "]";
}

}  // namespace sg
