// MatchState: the partners found so far, and what a pair would be worth; private to the matcher.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/diff/match.h"

namespace sg {

// What making a pair of two nodes is worth, given the partners of their neighbours.
struct PairWorth {
  int gain = 0;           // edits saved against removing the one and adding the other
  uint32_t operands = 0;  // operands that correspond
  uint32_t uses = 0;      // uses that correspond
  uint32_t alike = 0;     // operands without partners yet whose makers have one key
  bool same_op = false, same_key = false, same_place = false;
  bool lonely = false;  // neither has a neighbour
  bool is_allowed() const {
    if (!same_op) return operands > 0 && uses > 0;
    return operands + uses > 0 || lonely;
  }
};

class MatchState {
 public:
  static constexpr uint32_t kNone = MatchSide::kNone;
  static constexpr size_t kMaxUses = 64;  // uses of one value that are looked at, to bound the work

  MatchState(const MatchSide& a, const MatchSide& b);

  const MatchSide& side(int s) const { return *sides_[s]; }
  uint32_t partner(int s, uint32_t n) const { return match_.nodes[s][n]; }
  bool is_free(int s, uint32_t n) const { return match_.nodes[s][n] == kNone; }
  uint32_t value_partner(int s, uint32_t v) const { return match_.values[s][v]; }
  uint32_t output_partner(int s, uint32_t o) const { return match_.outputs[s][o]; }

  void pair(uint32_t x, uint32_t y);  // x of A, y of B. REQUIRES: both free
  void unpair(uint32_t x, uint32_t y);
  void pair_inputs(uint32_t i, uint32_t j);
  void pair_outputs(uint32_t i, uint32_t j);
  size_t pairs() const { return pairs_; }

  // `optimistic`: operands that have no partners yet on either side may still become partners.
  PairWorth worth(uint32_t x, uint32_t y, bool optimistic) const;

  // Where on the other side the partner of n is to be expected, going by what stands before it.
  uint32_t expected(int s, uint32_t n) const;

  // The partner of what stands before n.
  uint32_t behind(int s, uint32_t n) const;

  GraphMatch& match() { return match_; }
  const GraphMatch& match() const { return match_; }

 private:
  uint32_t shared_operands(uint32_t x, uint32_t y, uint32_t* open, uint32_t* alike) const;
  uint32_t shared_uses(uint32_t x, uint32_t y) const;
  bool has_operand(uint32_t n, uint32_t slot, uint32_t value) const;  // of A

  const MatchSide* sides_[2];
  GraphMatch match_;
  size_t pairs_ = 0;
};

}  // namespace sg
