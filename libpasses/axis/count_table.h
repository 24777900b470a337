// CountTable: which counts a vector of numbers holds, and in which order.
//
// A dispatch counts keys (which expert), sends the counts to the other ranks, and computes from them where each part of
// the items begins. Rules must prove this rather than assume it: a table records how a value was derived from counts by
// reshaping, transposing, summing and running sums, so that two values can be shown to describe the same parts in the
// same order.
//
// root     how often each key in [0, n) occurs on this rank; `received`: the counts from each rank, [ranks, n / ranks]
// cells    the axes of the root, row-major; their product is n
// order    the axes that the value still has, slowest first; all others have been summed
// scan     plain counts, or running sums of them in the order `scanned`: including the entry's own count (up_to) or
//          excluding it (before)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "libpasses/axis/axis_state.h"

namespace sg {

enum class Scan : uint8_t { counts, up_to, before };

struct CountTable {
  KeySource source;
  std::vector<int64_t> cells;
  std::vector<uint8_t> order;
  Scan scan = Scan::counts;
  std::vector<uint8_t> scanned;

  friend bool operator==(const CountTable&, const CountTable&) = default;
};

CountTable root_table(KeySource source, int64_t n);

// The table of the result if the value, of shape `shape`, goes through the op; none if the result is not a table.
std::optional<CountTable> permuted(CountTable t, std::span<const int64_t> shape, std::span<const size_t> axes);
std::optional<CountTable> summed(CountTable t, std::span<const int64_t> shape, const std::vector<bool>& gone);
std::optional<CountTable> running(CountTable t);  // cumsum of a vector
std::optional<CountTable> without_own(CountTable ends, const CountTable& counts);

int64_t length_of(const CountTable& t);                     // elements of the value
bool same_parts(const CountTable& a, const CountTable& b);  // equal source, cells and order
// The parts over which the running sums run, as plain counts.
CountTable scanned_parts(const CountTable& t);
// Whether the parts that `runs` describes are contiguous runs of the items in `layout`: the leading axes of the layout.
bool leads(const CountTable& runs, const CountTable& layout);

}  // namespace sg
