// The median of some figures: of an even number, the middle between two.
#pragma once

#include <algorithm>
#include <vector>

namespace sg {

// 0 of none.
inline double median(std::vector<double> figures) {
  if (figures.empty()) return 0;
  std::ranges::sort(figures);
  const size_t n = figures.size();
  return (figures[(n - 1) / 2] + figures[n / 2]) / 2;
}

}  // namespace sg
