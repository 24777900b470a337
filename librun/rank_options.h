// What one rank of a run may be asked for (rank_run.h).
#pragma once

#include <cstdint>
#include <optional>

#include "librun/numerics.h"

namespace sg {

class BackendMaker;

struct RankOptions {
  Numerics numerics = Numerics::fast;
  int threads = 1;
  uint64_t seed = 0;
  std::optional<int64_t> memory_limit;  // in addition to the inputs
  bool use_arena = true;                // false: each tensor in a block of its own, so that sanitizers see its end
  bool runs_once = false;               // one step at most: what a node needs is given up once it has run
  SumOrder sum_order = SumOrder::free;  // value_choice.h
  bool guards_flight = false;           // spoils results of collectives until their waits: collectives.h
  BackendMaker* backends = nullptr;     // null = the CPU
};

}  // namespace sg
