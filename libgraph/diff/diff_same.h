// Which values of one graph are one tensor, and which nodes only pass their argument on; private to the diff.
//
// Views       of one memory with one type (shape, strides, offset and dtype are the type) are one tensor: a view to the
//             size that was there, a transpose of a transpose, a detach.
// Copies      (clone, _to_copy, contiguous, ...) of a tensor are that tensor when neither is written anywhere in the
//             graph.
// Never       results of writes and waits, and views with a conjugate or a negative bit, which no type shows.
#pragma once

#include <vector>

#include "libgraph/diff/diff.h"

namespace sg {

// By value number: the earliest value that is the same tensor; the value itself, mostly.
std::vector<uint32_t> same_tensors(const MatchSide& side);

inline bool passes_on(const MatchSide& side, const std::vector<uint32_t>& tensor, uint32_t n) {
  return side.result_count(n) == 1 && tensor[side.first_result[n]] != side.first_result[n];
}

// The value whose memory node n is a view of, through any number of views; kNone = n is no view, or a conjugate or
// negative bit is among them.
uint32_t view_root(const MatchSide& side, uint32_t n);

// Pairs nodes without partners that have one key and take the same tensors (what stood between them and their
// neighbours on one side passes on only, or is a copy), and views of one memory with one type. Undoes pairs of a node
// that only passes on with one that does not and takes nothing of what it took. `moved` is worked out anew. REQUIRES:
// diff->tensors of both sides
void pair_through(GraphDiff* diff);

}  // namespace sg
