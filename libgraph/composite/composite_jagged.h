// Rows of unlike lengths, one after another: padded to one length and back, for recipes.
#pragma once

#include "libgraph/composite/composite_call.h"

namespace sg::composite {

// Where each piece begins in the rows, and how many it has: [pieces].
struct Pieces {
  ValueId starts, lengths;
};

// `offsets`, [pieces + 1], says where each begins and the last one ends.
Pieces pieces_of(CompositeCall& c, ValueId offsets);

// 0, 1, 2, ... on the device of `beside`.
ValueId counted_to(CompositeCall& c, Arg count, ValueId beside);

// [pieces, length, ...] of [rows, ...]. What a piece has beyond the length is left out.
ValueId padded(CompositeCall& c, ValueId rows, const Pieces& pieces, Arg length, PartArg filler);

// [count, ...] of [pieces, length, ...]. Pieces must fit into the length, and be as many rows in all: else an index is
// out of range when it runs.
ValueId unpadded(CompositeCall& c, ValueId padded, const Pieces& pieces, Arg count);

}  // namespace sg::composite
