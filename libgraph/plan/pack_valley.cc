#include "libgraph/plan/pack_valley.h"

#include <algorithm>
#include <numeric>

namespace sg {
namespace {

constexpr uint32_t kNoRank = 0xFFFFFFFFu;

}  // namespace

ValleyFill::ValleyFill(const PackInput& input, const std::vector<uint32_t>& items)
    : input_(input), rank_at_(input.steps + 1), places_(input.items.size()) {
  for (uint32_t i : items) {
    const PackItem& item = input_.items[i];
    Member m{i, UINT32_MAX, 0, 0, 0};
    for (uint32_t r = item.rect_begin; r < item.rect_begin + item.rect_count; ++r) {
      m.first = std::min(m.first, input_.rects[r].first);
      m.last = std::max(m.last, input_.rects[r].last);
      m.bytes = std::max(m.bytes, input_.rects[r].offset + input_.rects[r].bytes);
    }
    members_.push_back(m);
  }
  std::stable_sort(members_.begin(), members_.end(),
                   [](const Member& a, const Member& b) { return a.first < b.first; });
  uint32_t rank = 0;
  for (uint32_t step = 0; step <= input.steps; ++step) {
    while (rank < members_.size() && members_[rank].first < step) ++rank;
    rank_at_[step] = rank;
  }
}

ValleyFill::Outcome ValleyFill::fill(const ValleyRules& rules, int64_t goal, int64_t limit, size_t work_limit) {
  skip_.resize(members_.size() + 1);
  std::iota(skip_.begin(), skip_.end(), 0);
  const auto count = static_cast<uint32_t>(members_.size());
  left_.resize(count + 1);
  for (uint32_t i = 0; i <= count; ++i) left_[i] = {i == 0 ? count : i - 1, i == count ? 0 : i + 1};
  for (Member& m : members_) m.key = rules.keys[m.item];
  skyline_.assign(1, {0, input_.steps - 1, 0});
  work_ += 2 * members_.size();
  Outcome out{0, 0};
  for (size_t left = members_.size(); left > 0;) {
    size_t segment = lowest_segment();
    uint32_t rank = best_for(segment, rules);
    if (rank == kNoRank) {
      raise(segment);
      continue;
    }
    place(rank, segment);
    int64_t end = places_[members_[rank].item] + members_[rank].bytes;
    out.top = std::max(out.top, end);
    out.excess += std::clamp<int64_t>(end - goal, 0, members_[rank].bytes);
    if (out.top > limit || work_ > work_limit) return {};
    --left;
  }
  return out;
}

size_t ValleyFill::lowest_segment() {
  work_ += skyline_.size();
  size_t best = 0;
  for (size_t i = 1; i < skyline_.size(); ++i)
    if (skyline_[i].height < skyline_[best].height) best = i;
  return best;
}

// The first rank from here on that is not placed.
uint32_t ValleyFill::first_left(uint32_t rank) {
  while (skip_[rank] != rank) rank = skip_[rank] = skip_[skip_[rank]];
  return rank;
}

uint32_t ValleyFill::best_for(size_t segment, const ValleyRules& rules) {
  const Segment& valley = skyline_[segment];
  int64_t left_wall = segment == 0 ? -1 : skyline_[segment - 1].height;
  int64_t right_wall = segment + 1 == skyline_.size() ? -1 : skyline_[segment + 1].height;
  uint32_t best = kNoRank, end = rank_at_[valley.last + 1];
  int64_t best_key = 0;
  for (uint32_t rank = first_left(rank_at_[valley.first]); rank < end; rank = left_[rank].after) {
    ++work_;
    const Member& m = members_[rank];
    if (m.last > valley.last) continue;
    int64_t key = m.key, top = valley.height + m.bytes;
    bool at_left = m.first == valley.first, at_right = m.last == valley.last;
    if (at_left && at_right) key += rules.full_bonus;
    else if (at_left || at_right) key += rules.wall_bonus;
    if (top == left_wall || top == right_wall) key += rules.level_bonus;
    if (best == kNoRank || key > best_key) best = rank, best_key = key;
  }
  return best;
}

void ValleyFill::place(uint32_t rank, size_t segment) {
  const Member& m = members_[rank];
  const Segment valley = skyline_[segment];
  int64_t alignment = input_.items[m.item].alignment;
  int64_t at = (valley.height + alignment - 1) / alignment * alignment;
  places_[m.item] = at;
  skip_[rank] = rank + 1;
  const Links around = left_[rank];
  left_[around.before].after = around.after;
  left_[around.after].before = around.before;
  pieces_.clear();
  if (valley.first < m.first) pieces_.push_back({valley.first, m.first - 1, valley.height});
  outline(m, at, valley.height);
  if (m.last < valley.last) pieces_.push_back({m.last + 1, valley.last, valley.height});
  work_ += 8 + pieces_.size() + (skyline_.size() - segment) / 4;
  skyline_[segment] = pieces_[0];
  skyline_.insert(skyline_.begin() + static_cast<std::ptrdiff_t>(segment) + 1, pieces_.begin() + 1, pieces_.end());
  merge_around(segment, segment + pieces_.size());
}

// The item's skyline: at each of its steps, the end of its highest rectangle. Space under a rectangle that starts
// higher up is lost here; first fit recovers it.
void ValleyFill::outline(const Member& m, int64_t at, int64_t ground) {
  const PackItem& item = input_.items[m.item];
  const PackRect* rects = input_.rects.data() + item.rect_begin;
  if (item.rect_count == 1) {
    pieces_.push_back({m.first, m.last, at + m.bytes});
    return;
  }
  cuts_.clear();
  for (uint32_t r = 0; r < item.rect_count; ++r) cuts_.push_back(rects[r].first), cuts_.push_back(rects[r].last + 1);
  std::sort(cuts_.begin(), cuts_.end());
  cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
  for (size_t c = 0; c + 1 < cuts_.size(); ++c) {
    int64_t height = ground;
    for (uint32_t r = 0; r < item.rect_count; ++r)
      if (rects[r].first <= cuts_[c] && rects[r].last >= cuts_[c])
        height = std::max(height, at + rects[r].offset + rects[r].bytes);
    pieces_.push_back({cuts_[c], cuts_[c + 1] - 1, height});
  }
  work_ += cuts_.size() * item.rect_count;
}

// Merges neighbours of equal height, from the one before `begin` to the one after `end`.
void ValleyFill::merge_around(size_t begin, size_t end) {
  begin = begin == 0 ? 0 : begin - 1;
  end = std::min(end + 1, skyline_.size());
  size_t kept = begin;
  for (size_t i = begin + 1; i < end; ++i) {
    if (skyline_[i].height == skyline_[kept].height) skyline_[kept].last = skyline_[i].last;
    else skyline_[++kept] = skyline_[i];
  }
  skyline_.erase(skyline_.begin() + static_cast<std::ptrdiff_t>(kept) + 1,
                 skyline_.begin() + static_cast<std::ptrdiff_t>(end));
}

void ValleyFill::raise(size_t segment) {
  int64_t wall = INT64_MAX;
  if (segment > 0) wall = skyline_[segment - 1].height;
  if (segment + 1 < skyline_.size()) wall = std::min(wall, skyline_[segment + 1].height);
  skyline_[segment].height = wall;
  merge_around(segment, segment + 1);
}

}  // namespace sg
