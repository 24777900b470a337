#include "libpasses/axis/count_table.h"

#include <algorithm>
#include <numeric>

namespace sg {
namespace {

// Splits cell `at` in two: `leading` and the rest.
void split_cell(CountTable* t, uint8_t at, int64_t leading) {
  t->cells.insert(t->cells.begin() + at + 1, t->cells[at] / leading);
  t->cells[at] = leading;
  for (std::vector<uint8_t>* list : {&t->order, &t->scanned}) {
    std::vector<uint8_t> out;
    for (uint8_t axis : *list) {
      out.push_back(axis > at ? static_cast<uint8_t>(axis + 1) : axis);
      if (axis == at) out.push_back(static_cast<uint8_t>(at + 1));
    }
    *list = std::move(out);
  }
}

// Splits cells so that each axis of `shape` covers whole consecutive cells; returns how many each covers, none if
// impossible.
std::optional<std::vector<size_t>> align_to(CountTable* t, std::span<const int64_t> shape) {
  std::vector<size_t> runs;
  size_t next = 0;
  for (int64_t size : shape) {
    const size_t begin = next;
    while (size > 1) {
      if (next == t->order.size()) return std::nullopt;
      const int64_t cell = t->cells[t->order[next]];
      if (cell == 0) return std::nullopt;
      if (cell > size) {
        if (cell % size != 0) return std::nullopt;
        split_cell(t, t->order[next], size);
        continue;
      }
      if (size % cell != 0) return std::nullopt;
      size /= cell;
      ++next;
    }
    if (size != 1) return std::nullopt;
    runs.push_back(next - begin);
  }
  return next == t->order.size() ? std::optional(std::move(runs)) : std::nullopt;
}

bool follow(const std::vector<uint8_t>& list, uint8_t at) {
  auto it = std::ranges::find(list, at);
  if (it == list.end()) return std::ranges::find(list, static_cast<uint8_t>(at + 1)) == list.end();
  return it + 1 != list.end() && *(it + 1) == at + 1;
}

// Merges cells until as few as possible describe the same table.
CountTable simplified(CountTable t) {
  for (uint8_t at = 0; at + 1u < t.cells.size();) {
    if (!follow(t.order, at) || !follow(t.scanned, at)) {
      ++at;
      continue;
    }
    t.cells[at] *= t.cells[at + 1u];
    t.cells.erase(t.cells.begin() + at + 1);
    for (std::vector<uint8_t>* list : {&t.order, &t.scanned}) {
      std::erase(*list, static_cast<uint8_t>(at + 1));
      for (uint8_t& axis : *list) axis -= axis > at;
    }
  }
  return t;
}

// Splits the cells of both tables alike; false if they are incompatible.
bool align(CountTable* a, CountTable* b) {
  for (size_t i = 0; i < std::max(a->cells.size(), b->cells.size()); ++i) {
    if (i >= a->cells.size() || i >= b->cells.size()) return false;
    const int64_t x = a->cells[i], y = b->cells[i];
    if (x == y) continue;
    const int64_t small = std::min(x, y), large = std::max(x, y);
    if (small == 0 || large % small != 0) return false;
    split_cell(x > y ? a : b, static_cast<uint8_t>(i), small);
  }
  return a->cells == b->cells;
}

}  // namespace

CountTable root_table(KeySource source, int64_t n) {
  if (n == 1) return {source, {}, {}, Scan::counts, {}};
  return {source, {n}, {0}, Scan::counts, {}};
}

std::optional<CountTable> permuted(CountTable t, std::span<const int64_t> shape, std::span<const size_t> axes) {
  const auto runs = align_to(&t, shape);
  if (!runs || axes.size() != runs->size()) return std::nullopt;
  std::vector<size_t> begins(runs->size());
  std::exclusive_scan(runs->begin(), runs->end(), begins.begin(), size_t{0});
  std::vector<uint8_t> order;
  for (size_t axis : axes)
    for (size_t i = 0; i < (*runs)[axis]; ++i) order.push_back(t.order[begins[axis] + i]);
  t.order = std::move(order);
  return simplified(std::move(t));
}

std::optional<CountTable> summed(CountTable t, std::span<const int64_t> shape, const std::vector<bool>& gone) {
  const auto runs = align_to(&t, shape);
  if (!runs || t.scan != Scan::counts) return std::nullopt;
  std::vector<uint8_t> order;
  size_t next = 0;
  for (size_t axis = 0; axis < runs->size(); ++axis)
    for (size_t i = 0; i < (*runs)[axis]; ++i, ++next)
      if (!gone[axis]) order.push_back(t.order[next]);
  t.order = std::move(order);
  return simplified(std::move(t));
}

std::optional<CountTable> running(CountTable t) {
  if (t.scan != Scan::counts) return std::nullopt;
  t.scan = Scan::up_to;
  t.scanned = t.order;
  return t;
}

std::optional<CountTable> without_own(CountTable ends, const CountTable& counts) {
  if (ends.scan != Scan::up_to || counts.scan != Scan::counts || !same_parts(ends, counts)) return std::nullopt;
  ends.scan = Scan::before;
  return ends;
}

int64_t length_of(const CountTable& t) {
  int64_t out = 1;
  for (uint8_t axis : t.order) out *= t.cells[axis];
  return out;
}

bool same_parts(const CountTable& a, const CountTable& b) {
  CountTable x = a, y = b;
  return x.source == y.source && align(&x, &y) && x.order == y.order;
}

CountTable scanned_parts(const CountTable& t) { return simplified({t.source, t.cells, t.scanned, Scan::counts, {}}); }

bool leads(const CountTable& runs, const CountTable& layout) {
  CountTable x = runs, y = layout;
  return x.source == y.source && align(&x, &y) && x.order.size() <= y.order.size() &&
         std::equal(x.order.begin(), x.order.end(), y.order.begin());
}

}  // namespace sg
