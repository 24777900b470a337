// CountTable: which counts a vector of numbers holds, and in which order.
//
// A dispatch counts keys (which expert), sends the counts to the other ranks, and computes from them where each part of
// the items begins. That is proven here, and not believed: a table says of a value how it was made of counts, by
// reshaping, turning, summing and running sums, so that two values are known to speak of the same parts in the same
// order.
//
// root     how often each key 0 .. n-1 occurs among this rank's; `received`: what came of it from each rank, [ranks, n
// / ranks] cells    the axes of the root, row-major; their product is n order    those that the value has, slowest
// first; the others are summed scan     counts; or running sums of them, in the order `scanned`: with the own count
// (up_to) or without it (before)
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

// The table of a value of sizes `shape` after the op; none where it is no table any more.
std::optional<CountTable> permuted(CountTable t, std::span<const int64_t> shape, std::span<const size_t> axes);
std::optional<CountTable> summed(CountTable t, std::span<const int64_t> shape, const std::vector<bool>& gone);
std::optional<CountTable> running(CountTable t);  // cumsum of a vector
std::optional<CountTable> without_own(CountTable ends, const CountTable& counts);

int64_t length_of(const CountTable& t);                     // elements of the value
bool same_parts(const CountTable& a, const CountTable& b);  // equal source, cells and order
// What the running sums run over, as counts.
CountTable scanned_parts(const CountTable& t);
// Whether the items of a layout, part after part as `layout` counts them, come in runs as long as `runs` says: the
// layout's leading axes.
bool leads(const CountTable& runs, const CountTable& layout);

}  // namespace sg
