// MatchGroups: nodes of A and B that would be the same node if their operands (or their users) are; private to the
// matcher.
//
// A node's signature is its key and the values it takes (the places where it is used), in numbers of its own side. A
// node of B is looked up among those of A by its signature put into numbers of A, which works once all that it names
// has partners.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "libgraph/diff/match_state.h"

namespace sg {

class MatchGroups {
 public:
  enum class By : uint8_t { operands, uses };
  MatchGroups(const MatchState& state, By by);

  struct Fit {
    std::span<const uint32_t> of_a, of_b;  // nodes with these signatures, partners included
    size_t free_a = 0, free_b = 0;         // of them: without a partner
  };
  // The nodes of A that y (of B) could be; `of_a` is empty when there are none, or it cannot be told yet.
  Fit fit(uint32_t y);
  void took(uint32_t x, uint32_t y);  // a pair was made, by whoever
  void gave(uint32_t x, uint32_t y);  // and undone

 private:
  static constexpr uint32_t kNone = MatchSide::kNone;
  bool signature(int s, uint32_t n, bool translate);
  bool add_operands(int s, uint32_t n, bool translate);
  bool add_uses(int s, uint32_t n, bool translate);
  void group(int s);

  const MatchState& state_;
  By by_;
  SequenceTable tables_[2];
  std::vector<uint32_t> group_of_[2], begin_[2], members_[2], free_[2];
  std::vector<uint32_t> words_;
  std::vector<uint64_t> pairs_;
};

}  // namespace sg
