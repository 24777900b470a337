// NodeCopies: nodes of one side that have no partner and compute again what another node of that side has; private to
// the diff.
//
// By metadata (CopyOf) where it is there, else by value numbering: equal op, literals and numbers of operands; values
// that are one tensor (diff_same.h) have one number, and what came through the host is what went there. Nodes without
// operands (constants, allocations) are alike too easily: those copy only a node of the same module.
#pragma once

#include <vector>

#include "libgraph/diff/diff.h"

namespace sg {

// An offload, a reload, or a wait for either: what comes out is what went in.
bool goes_through_host(const MatchSide& side, uint32_t n);

class NodeCopies {
 public:
  NodeCopies(const GraphDiff& diff, int side);
  uint32_t original(uint32_t n) const { return original_[n]; }  // has a partner; kNone = n is no copy
  uint32_t original_value(uint32_t v) const;  // the original's result; v itself when its maker is no copy
  bool same(uint32_t v, uint32_t w) const { return v == w || number_[v] == number_[w]; }  // values of this side

 private:
  uint32_t by_metadata(uint32_t n) const;
  uint32_t number(uint32_t n);
  const MatchSide& side_;
  std::vector<uint32_t> original_, number_;  // by position; by value number
  SequenceTable nodes_, results_;
};

}  // namespace sg
