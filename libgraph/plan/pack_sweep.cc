#include "libgraph/plan/pack_sweep.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

namespace sg {
namespace {

// Free bytes as disjoint, non-adjacent holes; everything above the highest used byte is free.
class Holes {
 public:
  int64_t take(int64_t bytes) {
    const auto found = by_bytes_.lower_bound({bytes, 0});
    const int64_t place = found == by_bytes_.end() ? end_ : found->second;
    const int64_t left = found == by_bytes_.end() ? 0 : found->first - bytes;
    if (found == by_bytes_.end()) {
      end_ += bytes;
    } else {
      by_place_.erase(place);
      by_bytes_.erase(found);
    }
    if (left > 0) insert(place + bytes, left);
    return place;
  }

  void give(int64_t place, int64_t bytes) {
    auto next = by_place_.lower_bound(place);
    if (next != by_place_.begin())
      if (auto before = std::prev(next); before->first + before->second == place) {
        place = before->first, bytes += before->second;
        remove(before);
      }
    if (next != by_place_.end() && next->first == place + bytes) {
      bytes += next->second;
      remove(next);
    }
    if (place + bytes == end_) end_ = place;
    else insert(place, bytes);
  }

 private:
  void insert(int64_t place, int64_t bytes) {
    by_place_.emplace(place, bytes);
    by_bytes_.emplace(bytes, place);
  }

  void remove(std::map<int64_t, int64_t>::iterator hole) {
    by_bytes_.erase({hole->second, hole->first});
    by_place_.erase(hole);
  }

  int64_t end_ = 0;
  std::map<int64_t, int64_t> by_place_;             // place -> bytes
  std::set<std::pair<int64_t, int64_t>> by_bytes_;  // (bytes, place)
};

struct Event {
  uint32_t step, item;
  bool begins;
};

}  // namespace

std::vector<int64_t> sweep_places(const PackInput& input, SweepFrom from) {
  std::vector<int64_t> bytes(input.items.size(), 0), places(input.items.size(), 0);
  int64_t unit = 1;
  for (const PackItem& item : input.items) unit = std::lcm(unit, item.alignment);
  std::vector<Event> events;
  for (uint32_t i = 0; i < input.items.size(); ++i) {
    const PackItem& item = input.items[i];
    uint32_t first = UINT32_MAX, last = 0;
    for (uint32_t r = item.rect_begin; r < item.rect_begin + item.rect_count; ++r) {
      const PackRect& rect = input.rects[r];
      first = std::min(first, rect.first);
      last = std::max(last, rect.last);
      bytes[i] = std::max(bytes[i], rect.offset + rect.bytes);
    }
    bytes[i] = (bytes[i] + unit - 1) / unit * unit;
    if (item.rect_count == 0) continue;
    if (from == SweepFrom::last_step)
      first = input.steps - 1 - first, last = input.steps - 1 - last, std::swap(first, last);
    events.push_back({first, i, true});
    events.push_back({last, i, false});
  }
  // Within a step, beginnings come before ends; the largest first.
  std::sort(events.begin(), events.end(), [&](const Event& a, const Event& b) {
    if (a.step != b.step) return a.step < b.step;
    if (a.begins != b.begins) return a.begins;
    return bytes[a.item] != bytes[b.item] ? bytes[a.item] > bytes[b.item] : a.item < b.item;
  });
  Holes holes;
  for (const Event& event : events)
    if (event.begins) places[event.item] = holes.take(bytes[event.item]);
    else holes.give(places[event.item], bytes[event.item]);
  return places;
}

}  // namespace sg
