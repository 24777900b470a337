#include "librun/cpu/stable_order.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "librun/cpu/radix_order.h"

namespace sg::cpu {
namespace {

constexpr int kDigit = 11;
constexpr int64_t kFew = kLeastRadix;  // so few are sorted by comparison

struct Item {
  uint64_t key;  // minus the smallest
  int64_t place;
};

// to: the items, ordered by their digit from bit `shift` on.
void by_digit(const std::vector<Item>& from, int shift, std::vector<Item>* to) {
  constexpr uint64_t mask = (uint64_t{1} << kDigit) - 1;
  std::array<size_t, size_t{1} << kDigit> next{};
  for (const Item& item : from) ++next[(item.key >> shift) & mask];
  size_t sum = 0;
  for (size_t& n : next) sum += std::exchange(n, sum);
  for (const Item& item : from) (*to)[next[(item.key >> shift) & mask]++] = item;
}

// Sorts by 32-bit keys; false if their range is too wide.
bool order_near(const int64_t* keys, int64_t n, int64_t* order) {
  if (n > int64_t{UINT32_MAX}) return false;
  const std::unique_ptr<KeyedIndex[]> items(new KeyedIndex[2 * static_cast<size_t>(n)]);
  if (!radix_items(keys, n, false, items.get())) return false;
  radix_sort(items.get(), items.get() + n, n);
  for (int64_t i = 0; i < n; ++i) order[i] = items[static_cast<size_t>(i)].index;
  return true;
}

}  // namespace

void stable_order(const int64_t* keys, int64_t n, int64_t* order) {
  std::iota(order, order + n, int64_t{0});
  if (std::is_sorted(keys, keys + n)) return;
  if (n < kFew) return std::stable_sort(order, order + n, [&](int64_t a, int64_t b) { return keys[a] < keys[b]; });
  if (order_near(keys, n, order)) return;
  const auto [least, most] = std::minmax_element(keys, keys + n);
  const auto low = static_cast<uint64_t>(*least), span = static_cast<uint64_t>(*most) - low;
  std::vector<Item> items(static_cast<size_t>(n)), other(items.size());
  for (size_t i = 0; i < items.size(); ++i) items[i] = {static_cast<uint64_t>(keys[i]) - low, static_cast<int64_t>(i)};
  for (int shift = 0; shift < 64 && span >> shift != 0; shift += kDigit) {
    by_digit(items, shift, &other);
    items.swap(other);
  }
  for (size_t i = 0; i < items.size(); ++i) order[i] = items[i].place;
}

}  // namespace sg::cpu
