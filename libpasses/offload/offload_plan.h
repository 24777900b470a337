// What sg-offload may move, and what it moves: pure functions of a const program. Internal to the pass.
#pragma once

#include <string>
#include <vector>

#include "libgraph/plan/liveness.h"
#include "libpasses/offload/offload.h"
#include "libpasses/remat/remat_model.h"

namespace sg {

// When a value leaves the device and comes back. Nodes are those of the graph before anything is inserted.
struct OffloadWay {
  NodeId leave_after;                      // its copy is waited for behind this node
  NodeId fetch_before;                     // the copy back begins before this one
  uint32_t away_first = 0, away_last = 0;  // schedule positions at which it is off the device

  bool is_away_at(uint32_t position) const { return away_first <= position && position <= away_last; }
  friend bool operator==(const OffloadWay&, const OffloadWay&) = default;
};

// A value that may go to the host: all of its storage.
struct OffloadCandidate {
  ValueId value;
  int64_t bytes = 0;
  NodeId start_after;            // the copy may begin behind this node: the value is complete
  NodeId first_use;              // the first node behind the forward that needs it
  std::vector<OffloadWay> ways;  // not empty: at the distances asked for, then longer away
};

// A value that the backward needs and that stays, and why.
struct OffloadKept {
  ValueId value;
  int64_t bytes = 0;
  std::string_view why;
};

// Shows memory that is there already, and does nothing else: may be taken again of a copy of that memory.
bool is_plain_view(const Graph& graph, NodeId n);

// When nodes begin, and what a copy takes: for distances in time instead of layers.
struct OffloadClock {
  std::vector<double> begin_us;  // by schedule position, ascending
  double bytes_per_us = 1;       // of a copy, each way
  double copy_us(int64_t bytes) const { return static_cast<double>(bytes) / bytes_per_us; }
};

// What recomputation will make of a program whose tags nobody has applied yet.
struct OffloadOutlook {
  std::vector<RematCopy> copies;    // by schedule positions; empty = no tags are open
  std::vector<int64_t> live_bytes;  // then, by position
};

struct OffloadFacts {
  std::vector<OffloadCandidate> candidates;  // in schedule order
  std::vector<OffloadKept> kept;             // the same
};

OffloadFacts find_offload_candidates(Program* program, const Liveness& liveness, const OffloadOptions& options,
                                     const OffloadClock* clock = nullptr, const OffloadOutlook& outlook = {});

struct OffloadChoice {
  struct Taken {
    size_t candidate, way;
    friend bool operator==(const Taken&, const Taken&) = default;
  };
  std::vector<Taken> taken;  // ascending
  int64_t host_bytes = 0;
  size_t over_budget = 0;  // candidates that would lower the peak and do not fit the budget
  size_t of_no_use = 0;    // candidates that would not lower the peak
};

// `live_bytes` by position; `budget_bytes` is what is left of it.
OffloadChoice choose_offloads(const std::vector<OffloadCandidate>& candidates, const std::vector<int64_t>& live_bytes,
                              std::optional<int64_t> budget_bytes, bool all);

// Copies back share one link: those of what was taken begin as much earlier as the ones behind them need it.
void queue_fetches(const OffloadChoice& choice, const Liveness& liveness, const OffloadClock& clock,
                   uint32_t first_late, std::vector<OffloadCandidate>* candidates);

}  // namespace sg
