#include "tools/sweep/front.h"

#include <algorithm>
#include <cmath>

namespace sg::sweep {
namespace {

constexpr size_t kRound = 4;

bool is_equal(const Point& a, const Point& b) {
  return a.step_seconds == b.step_seconds && a.peak_bytes == b.peak_bytes;
}

bool beats(const Point& a, const Point& b) {
  return a.step_seconds <= b.step_seconds && a.peak_bytes <= b.peak_bytes &&
         (a.step_seconds < b.step_seconds || a.peak_bytes < b.peak_bytes);
}

std::optional<Point> between(const Point& a, const Point& b, const std::vector<Axis>& axes) {
  Point out;
  bool differs = false;
  for (size_t i = 0; i < a.values.size(); ++i) {
    out.values.push_back(a.values[i]);
    if (a.values[i].second == b.values[i].second) continue;
    if (std::optional<std::string> middle = middle_of(a.values[i].second, b.values[i].second, axes[i].whole)) {
      out.values[i].second = *middle;
      differs = true;
    }  // no middle (such as between 1 and 2): another axis may have one
  }
  if (!differs) return {};
  return out;
}

bool differ_in_numbers(const Point& a, const Point& b) {
  for (size_t i = 0; i < a.values.size(); ++i) {
    const std::string &x = a.values[i].second, &y = b.values[i].second;
    if (x != y && !are_numbers(x, y)) return false;
  }
  return true;
}

// The nearest failed point that differs from `p` in a single number; null = none.
const Point* failed_beside(const Point& p, const std::vector<Point>& points) {
  const Point* out = nullptr;
  double nearest = 0;
  for (const Point& q : points) {
    if (q.measured || !q.is_final() || !differ_in_numbers(p, q)) continue;
    size_t axis = 0, differing = 0;
    for (size_t i = 0; i < p.values.size(); ++i)
      if (p.values[i] != q.values[i]) axis = i, ++differing;
    if (differing != 1) continue;
    const double apart = distance(p.values[axis].second, q.values[axis].second);
    if (!out || apart < nearest) out = &q, nearest = apart;
  }
  return out;
}

struct Gap {
  Point middle;
  bool at_limit = false;
  double area = 0;
};

}  // namespace

void mark_front(std::vector<Point>* points) {
  for (size_t i = 0; i < points->size(); ++i) {
    Point& p = (*points)[i];
    p.on_front = p.measured;
    for (size_t k = 0; k < points->size() && p.on_front; ++k) {
      const Point& q = (*points)[k];
      p.on_front = !q.measured || !(beats(q, p) || (k < i && is_equal(q, p)));
    }
  }
}

std::vector<const Point*> front_of(const std::vector<Point>& points) {
  std::vector<const Point*> out;
  for (const Point& p : points)
    if (p.on_front) out.push_back(&p);
  std::ranges::stable_sort(out, {}, [](const Point* p) { return std::pair(p->peak_bytes, p->step_seconds); });
  return out;
}

std::vector<Point> next_points(const std::vector<Point>& points, const std::vector<Axis>& axes,
                               std::optional<double> limit_bytes, size_t most) {
  const std::vector<const Point*> front = front_of(points);
  std::vector<Gap> gaps;
  auto is_asked = [&](const Point& middle) {
    auto is_middle = [&](const Point& p) { return p.values == middle.values; };
    return std::ranges::any_of(points, is_middle) || std::ranges::any_of(gaps, is_middle, &Gap::middle);
  };
  for (size_t i = 0; i + 1 < front.size(); ++i) {
    const Point &a = *front[i], &b = *front[i + 1];
    if (!differ_in_numbers(a, b)) continue;
    std::optional<Point> middle = between(a, b, axes);
    if (!middle || is_asked(*middle)) continue;
    const double peaks = std::log(b.peak_bytes + 1) - std::log(a.peak_bytes + 1);
    const double times = std::log(a.step_seconds + 1e-12) - std::log(b.step_seconds + 1e-12);
    const bool at_limit = limit_bytes && a.peak_bytes <= *limit_bytes && b.peak_bytes > *limit_bytes;
    gaps.push_back({std::move(*middle), at_limit, peaks * times});
  }
  const Point* failed = gaps.empty() && !front.empty() ? failed_beside(*front[0], points) : nullptr;
  std::optional<Point> lowest = failed ? between(*failed, *front[0], axes) : std::nullopt;
  if (lowest && !is_asked(*lowest)) gaps.push_back({std::move(*lowest), false, 0});
  std::ranges::stable_sort(
      gaps, [](const Gap& a, const Gap& b) { return a.at_limit != b.at_limit ? a.at_limit : a.area > b.area; });
  if (!gaps.empty() && gaps[0].at_limit) gaps.resize(1);
  std::vector<Point> out;
  for (Gap& g : gaps)
    if (out.size() < std::min(kRound, most)) out.push_back(std::move(g.middle));
  return out;
}

}  // namespace sg::sweep
