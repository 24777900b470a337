// Members of buckets are no buckets; private to the diff.
#pragma once

#include "libgraph/diff/diff.h"

namespace sg {

// Undoes pairs of a collective with another that has its data and more, on either side: one of several is not what all
// were merged into. What packs for it and what waits for it goes along. `moved` is worked out anew.
void unpair_members(GraphDiff* diff);

}  // namespace sg
