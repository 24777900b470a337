// The bound on what has to take time in proportion to its input, for tests.
#pragma once

#include <ctime>

namespace sg::test {

// Processor time, so that a loaded machine changes nothing.
inline double seconds_since(std::clock_t start) { return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC; }

// One bound for all builds, sanitizers included: what is quadratic takes minutes at the sizes that are tested.
inline constexpr double kLinearSeconds = 30;

}  // namespace sg::test
