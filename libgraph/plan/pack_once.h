// pack, where what was packed before is not searched for again: ranks of a job mostly have the same pieces, and a pass
// plans the graph that the pass before it has left.
#pragma once

#include "libgraph/plan/pack.h"

namespace sg {

// As pack, whose places depend on nothing else. Safe from several threads: one that asks for what another is packing
// waits for it. The latest inputs are kept, large ones are not.
Packing pack_once(PackInput input, const PackOptions& options = {});

}  // namespace sg
