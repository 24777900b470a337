// What --compare finds (compare.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sg {

struct RunDifference {
  std::string name, original;     // names in the changed graph and in the first
  std::string op, module, place;  // of the changed graph's node; place: file:line
  uint64_t order = 0;             // position in the schedule of the second run
  std::string what;               // "values", "shape [2, 3] instead of [3, 2]", "dtype f32 instead of bf16"
};

struct ComparisonReport {
  size_t equal = 0, copies_equal = 0, chunked_equal = 0, sums_close = 0, without_counterpart = 0;
  size_t reordered_equal = 0;              // chunks that form the original except for the order along an axis
  size_t own_numbers = 0;                  // integer chunks that do not: positions in a chunk's own order
  std::vector<RunDifference> differences;  // by order
};

}  // namespace sg
