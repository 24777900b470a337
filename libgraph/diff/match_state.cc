#include "libgraph/diff/match_state.h"

#include <algorithm>

namespace sg {
namespace {

bool has_neighbours(const MatchSide& side, uint32_t n) {
  return !side.operands(n).empty() || side.use_begin[side.first_result[n]] != side.use_begin[side.first_result[n + 1]];
}

}  // namespace

MatchState::MatchState(const MatchSide& a, const MatchSide& b) : sides_{&a, &b} {
  for (int s = 0; s < 2; ++s) {
    match_.nodes[s].assign(sides_[s]->node_count(), kNone);
    match_.values[s].assign(sides_[s]->value_count(), kNone);
    match_.inputs[s].assign(sides_[s]->input_count(), kNone);
    match_.outputs[s].assign(sides_[s]->graph->outputs().size(), kNone);
  }
}

void MatchState::pair(uint32_t x, uint32_t y) {
  match_.nodes[0][x] = y, match_.nodes[1][y] = x;
  uint32_t count = std::min(side(0).result_count(x), side(1).result_count(y));
  for (uint32_t r = 0; r < count; ++r) {
    uint32_t v = side(0).first_result[x] + r, w = side(1).first_result[y] + r;
    match_.values[0][v] = w, match_.values[1][w] = v;
  }
  ++pairs_;
}

void MatchState::unpair(uint32_t x, uint32_t y) {
  match_.nodes[0][x] = match_.nodes[1][y] = kNone;
  for (uint32_t v = side(0).first_result[x]; v < side(0).first_result[x + 1]; ++v) match_.values[0][v] = kNone;
  for (uint32_t v = side(1).first_result[y]; v < side(1).first_result[y + 1]; ++v) match_.values[1][v] = kNone;
  --pairs_;
}

void MatchState::pair_inputs(uint32_t i, uint32_t j) {
  match_.inputs[0][i] = j, match_.inputs[1][j] = i;
  match_.values[0][i] = j, match_.values[1][j] = i;  // inputs are the first values
}

void MatchState::pair_outputs(uint32_t i, uint32_t j) { match_.outputs[0][i] = j, match_.outputs[1][j] = i; }

uint32_t MatchState::shared_operands(uint32_t x, uint32_t y, uint32_t* open, uint32_t* alike) const {
  std::span<const uint32_t> a = side(0).operands(x), b = side(1).operands(y);
  auto is_shared = [&](size_t i, size_t j) { return value_partner(1, b[j]) == a[i]; };
  auto is_open = [&](size_t i, size_t j) { return value_partner(1, b[j]) == kNone && value_partner(0, a[i]) == kNone; };
  auto is_alike = [&](size_t i, size_t j) {
    uint32_t m = side(0).maker[a[i]], n = side(1).maker[b[j]];
    return is_open(i, j) && m != kNone && n != kNone && side(0).key[m] == side(1).key[n];
  };
  uint32_t shared = 0;
  *open = *alike = 0;
  if (side(0).commutative[x] && side(1).commutative[y]) {
    uint32_t straight = is_shared(0, 0) + is_shared(1, 1), crossed = is_shared(0, 1) + is_shared(1, 0);
    uint32_t straight_alike = is_alike(0, 0) + is_alike(1, 1), crossed_alike = is_alike(0, 1) + is_alike(1, 0);
    bool cross = crossed > straight || (crossed == straight && crossed_alike > straight_alike);
    *open = is_open(0, cross) + is_open(1, !cross);
    *alike = cross ? crossed_alike : straight_alike;
    return std::max(straight, crossed);
  }
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    shared += is_shared(i, i);
    *open += is_open(i, i);
    *alike += is_alike(i, i);
  }
  return shared;
}

bool MatchState::has_operand(uint32_t n, uint32_t slot, uint32_t value) const {
  std::span<const uint32_t> operands = side(0).operands(n);
  if (side(0).commutative[n]) return operands[0] == value || operands[1] == value;
  return slot < operands.size() && operands[slot] == value;
}

uint32_t MatchState::shared_uses(uint32_t x, uint32_t y) const {
  uint32_t shared = 0, count = std::min(side(0).result_count(x), side(1).result_count(y));
  const std::vector<Output>& outputs = side(0).graph->outputs();
  for (uint32_t r = 0; r < count; ++r) {
    uint32_t v = side(0).first_result[x] + r;
    std::span<const MatchUse> uses = side(1).uses(side(1).first_result[y] + r);
    for (const MatchUse& use : uses.first(std::min(uses.size(), kMaxUses))) {
      if (use.is_output) {
        uint32_t o = output_partner(1, use.user);
        shared += o != kNone && outputs[o].value && side(0).value_of[outputs[o].value.index] == v;
      } else if (uint32_t user = partner(1, use.user); user != kNone) {
        shared += has_operand(user, use.slot, v);
      }
    }
  }
  return shared;
}

PairWorth MatchState::worth(uint32_t x, uint32_t y, bool optimistic) const {
  PairWorth w;
  uint32_t open = 0;
  w.operands = shared_operands(x, y, &open, &w.alike);
  w.uses = shared_uses(x, y);
  w.same_op = side(0).op[x] == side(1).op[y];
  w.same_key = side(0).key[x] == side(1).key[y];
  w.same_place = side(0).place[x] == side(1).place[y];
  w.lonely = !has_neighbours(side(0), x) && !has_neighbours(side(1), y);
  size_t slots = std::max(side(0).operands(x).size(), side(1).operands(y).size());
  size_t changed = slots - w.operands - (optimistic ? open : 0);
  w.gain = 2 + static_cast<int>(w.uses) - (w.same_key ? 0 : 1) - static_cast<int>(std::min<size_t>(changed, 1 << 20));
  return w;
}

uint32_t MatchState::behind(int s, uint32_t n) const {
  constexpr uint32_t kReach = 64;
  for (uint32_t back = 1; back <= std::min(n, kReach); ++back)
    if (uint32_t p = partner(s, n - back); p != kNone) return p;
  return n;
}

uint32_t MatchState::expected(int s, uint32_t n) const {
  constexpr uint32_t kReach = 64;
  for (uint32_t back = 1; back <= std::min(n, kReach); ++back)
    if (uint32_t p = partner(s, n - back); p != kNone) return p + back;
  return n;
}

}  // namespace sg
