// The Pareto front of time against peak, and where to ask next.
//
// Front     points that no other is at least as fast and as small as, and better in one. Of equal points
//           the one that was asked for first stands on it.
// Search    Between two neighbours on the front, in the order of their peaks, a better point can only lie in the
//           rectangle that they span. Each round takes neighbours that differ in numbers alone, the largest rectangles
//           first (in logarithms, so that no unit counts more than another), four at most, and asks for the middle:
//           each axis on which the two differ, halfway. With a limit, the pair on both sides of it goes alone before
//           the others: that is bisection. Where nothing is left, the smallest point and the failed one next to it on
//           one axis: how low can it go? A pair whose middle is known, or that has none, is done. It ends when nothing
//           is left, or the points allowed are spent. What is asked for depends on results alone, never on how many are
//           made at once.
#pragma once

#include <optional>
#include <vector>

#include "tools/sweep/axis.h"
#include "tools/sweep/point.h"

namespace sg::sweep {

void mark_front(std::vector<Point>* points);

// The marked ones, by peak.
std::vector<const Point*> front_of(const std::vector<Point>& points);

// Points to ask for next, at most `most`. `axes`: of the points' values. `limit_bytes`: the peak that is allowed.
std::vector<Point> next_points(const std::vector<Point>& points, const std::vector<Axis>& axes,
                               std::optional<double> limit_bytes, size_t most);

}  // namespace sg::sweep
