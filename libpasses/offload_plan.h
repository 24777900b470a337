// What sg-offload may move, and what it moves: pure functions of a const program. Internal to the pass.
#pragma once

#include <string>
#include <vector>

#include "libgraph/liveness.h"
#include "libpasses/offload.h"

namespace sg {

// When a value leaves the device and comes back. Nodes are those of the graph before anything is inserted.
struct OffloadWay {
  NodeId leave_after;                    // its copy is waited for behind this node
  NodeId fetch_before;                   // the copy back begins before this one
  uint32_t away_first = 0, away_last = 0;   // schedule positions at which it is off the device

  bool is_away_at(uint32_t position) const { return away_first <= position && position <= away_last; }
  friend bool operator==(const OffloadWay&, const OffloadWay&) = default;
};

// A value that may go to the host: all of its storage.
struct OffloadCandidate {
  ValueId value;
  int64_t bytes = 0;
  NodeId start_after;                    // the copy may begin behind this node: the value is complete
  NodeId first_use;                      // the first node behind the forward that needs it
  std::vector<OffloadWay> ways;          // not empty: at the distances asked for, then longer away
};

// A value that the backward needs and that stays, and why.
struct OffloadKept {
  ValueId value;
  int64_t bytes = 0;
  std::string_view why;
};

// Shows memory that is there already, and does nothing else: may be taken again of a copy of that memory.
bool is_plain_view(const Graph& graph, NodeId n);

struct OffloadFacts {
  std::vector<OffloadCandidate> candidates;      // in schedule order
  std::vector<OffloadKept> kept;                 // the same
};

OffloadFacts find_offload_candidates(Program* program, const Liveness& liveness, const OffloadOptions& options);

struct OffloadChoice {
  struct Taken {
    size_t candidate, way;
    friend bool operator==(const Taken&, const Taken&) = default;
  };
  std::vector<Taken> taken;                      // ascending
  int64_t host_bytes = 0;
  size_t over_budget = 0;                        // candidates that would lower the peak and do not fit the budget
  size_t of_no_use = 0;                          // candidates that would not lower the peak
};

// `budget_bytes` is what is left of it.
OffloadChoice choose_offloads(const std::vector<OffloadCandidate>& candidates, const Liveness& liveness,
                              std::optional<int64_t> budget_bytes, bool all);

}  // namespace sg
