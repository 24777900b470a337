#include "libgraph/diff/match_groups.h"

#include <algorithm>

namespace sg {
namespace {

constexpr uint32_t kOutputBit = 0x80000000u;

}  // namespace

MatchGroups::MatchGroups(const MatchState& state, By by) : state_(state), by_(by) {
  for (int s = 0; s < 2; ++s) group(s);
}

void MatchGroups::group(int s) {
  uint32_t count = static_cast<uint32_t>(state_.side(s).node_count());
  group_of_[s].assign(count, kNone);
  for (uint32_t n = 0; n < count; ++n)
    if (signature(s, n, false)) group_of_[s][n] = tables_[s].intern(words_);
  begin_[s].assign(tables_[s].size() + 1, 0);
  for (uint32_t g : group_of_[s])
    if (g != kNone) ++begin_[s][g + 1];
  for (size_t g = 1; g < begin_[s].size(); ++g) begin_[s][g] += begin_[s][g - 1];
  members_[s].resize(begin_[s].back());
  free_[s].assign(tables_[s].size(), 0);
  std::vector<uint32_t> next(begin_[s].begin(), begin_[s].end() - 1);
  for (uint32_t n = 0; n < count; ++n)
    if (uint32_t g = group_of_[s][n]; g != kNone) {
      members_[s][next[g]++] = n;
      free_[s][g] += state_.is_free(s, n);
    }
}

// The key alone is too weak a signature: nodes without operands (or users) have none.
bool MatchGroups::signature(int s, uint32_t n, bool translate) {
  words_ = {state_.side(s).key[n]};
  return by_ == By::operands ? add_operands(s, n, translate) : add_uses(s, n, translate);
}

bool MatchGroups::add_operands(int s, uint32_t n, bool translate) {
  std::span<const uint32_t> operands = state_.side(s).operands(n);
  for (uint32_t v : operands) {
    words_.push_back(translate ? state_.value_partner(s, v) : v);
    if (words_.back() == kNone) return false;
  }
  if (state_.side(s).commutative[n]) std::sort(words_.begin() + 1, words_.end());
  return !operands.empty();
}

bool MatchGroups::add_uses(int s, uint32_t n, bool translate) {
  const MatchSide& side = state_.side(s);
  bool is_used = false;
  for (uint32_t v = side.first_result[n]; v < side.first_result[n + 1]; ++v) {
    pairs_.clear();
    for (const MatchUse& use : side.uses(v)) {
      uint32_t user = !translate      ? use.user
                      : use.is_output ? state_.output_partner(s, use.user)
                                      : state_.partner(s, use.user);
      if (user == kNone) return false;
      bool any_slot = !use.is_output && side.commutative[use.user];
      pairs_.push_back(static_cast<uint64_t>(user) << 32 | (use.is_output ? kOutputBit : any_slot ? 0 : use.slot));
    }
    std::sort(pairs_.begin(), pairs_.end());
    is_used = is_used || !pairs_.empty();
    words_.push_back(static_cast<uint32_t>(pairs_.size()));
    for (uint64_t p : pairs_)
      words_.push_back(static_cast<uint32_t>(p >> 32)), words_.push_back(static_cast<uint32_t>(p));
  }
  return is_used;
}

MatchGroups::Fit MatchGroups::fit(uint32_t y) {
  uint32_t own = group_of_[1][y];
  if (own == kNone || !signature(1, y, true)) return {};
  uint32_t g = tables_[0].find(words_);
  if (g == kNone) return {};
  auto members = [&](int s, uint32_t of) {
    return std::span<const uint32_t>(members_[s]).subspan(begin_[s][of], begin_[s][of + 1] - begin_[s][of]);
  };
  return {members(0, g), members(1, own), free_[0][g], free_[1][own]};
}

void MatchGroups::took(uint32_t x, uint32_t y) {
  if (group_of_[0][x] != kNone) --free_[0][group_of_[0][x]];
  if (group_of_[1][y] != kNone) --free_[1][group_of_[1][y]];
}

void MatchGroups::gave(uint32_t x, uint32_t y) {
  if (group_of_[0][x] != kNone) ++free_[0][group_of_[0][x]];
  if (group_of_[1][y] != kNone) ++free_[1][group_of_[1][y]];
}

}  // namespace sg
