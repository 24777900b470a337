// Packing from below: the lowest flat part of the skyline, a valley, is filled by the item of the highest key that fits
// between its walls; a valley that nothing fits is raised to its lower wall. Internal to pack.
//
// Against first fit it leaves few holes, as long items are not put on top of short ones; it depends on good keys. What
// fills a valley from wall to wall, stands at a wall, or ends level with one, leaves the skyline smoother: a bonus says
// how much that counts beside the key.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "libgraph/plan/pack.h"

namespace sg {

struct ValleyRules {
  std::vector<int64_t> keys;  // by input item
  int64_t full_bonus = 0, wall_bonus = 0, level_bonus = 0;
};

class ValleyFill {
 public:
  // `items` are indices into input.items: those that take part.
  ValleyFill(const PackInput& input, const std::vector<uint32_t>& items);

  struct Outcome {
    int64_t top = INT64_MAX;  // where the last item ends; INT64_MAX = given up
    int64_t excess = 0;       // bytes of items above the goal: tells outcomes of equal tops apart
    friend auto operator<=>(const Outcome&, const Outcome&) = default;
  };

  // Places the items. Gives up when the top is above `limit` or the work passes `work_limit`.
  Outcome fill(const ValleyRules& rules, int64_t goal, int64_t limit, size_t work_limit);
  const std::vector<int64_t>& places() const { return places_; }  // by input item
  size_t work() const { return work_; }                           // elementary steps of all fills

 private:
  struct Segment {
    uint32_t first, last;  // steps
    int64_t height;
  };
  struct Member {
    uint32_t item, first, last;  // first and last step of all its rectangles
    int64_t bytes;               // extent
    int64_t key;
  };

  struct Links {
    uint32_t before, after;
  };

  size_t lowest_segment();
  uint32_t best_for(size_t segment, const ValleyRules& rules);
  void place(uint32_t rank, size_t segment);
  void raise(size_t segment);
  void merge_around(size_t begin, size_t end);
  void outline(const Member& member, int64_t at, int64_t ground);
  uint32_t first_left(uint32_t rank);

  const PackInput& input_;
  std::vector<Member> members_;  // by first step: a rank is an index into it
  std::vector<Links> left_;      // by rank: its neighbours among those not placed; a ring, closed behind the last rank
  std::vector<uint32_t> skip_;   // rank -> a rank at or after it that is not placed, union-find
  std::vector<uint32_t> rank_at_;  // by step: first rank that begins there or later
  std::vector<Segment> skyline_, pieces_;
  std::vector<uint32_t> cuts_;
  std::vector<int64_t> places_;
  size_t work_ = 0;
};

}  // namespace sg
