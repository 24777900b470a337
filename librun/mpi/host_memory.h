// Shared memory of the ranks of one host: heartbeats, and the first failure.
#pragma once

#include <mpi.h>

#include <atomic>
#include <optional>
#include <vector>

#include "libgraph/base/result.h"
#include "librun/comm/heartbeat.h"

namespace sg {

class HostMemory {
 public:
  // Collective over `world`. An error if the host has no memory to share.
  Status open(MPI_Comm world);
  void close();  // collective; not after a failure

  Heartbeat& own() { return slots_[own_]->heart; }
  std::vector<WatchedRank> in_sight() const;

  // Publishes a failure; the first one of this host counts. (any thread)
  void tell(const Error& error);
  bool failed() const;
  bool claim_speech();    // true for the first rank of this host that calls it
  Error failure() const;  // REQUIRES: failed()

 private:
  struct Slot {
    Heartbeat heart;
    std::atomic<uint32_t> told{0};  // 1 = `kind` and `message` are being written, 2 = complete
    uint32_t kind = 0;
    char message[2000] = {}, hint[400] = {};
    std::atomic<uint32_t> spoken{0};  // in the first rank's slot: whether a rank has taken over the report
  };

  MPI_Comm host_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  size_t own_ = 0;
  std::vector<Slot*> slots_;     // by rank on this host
  std::vector<uint32_t> ranks_;  // the same order, as ranks of the world
};

}  // namespace sg
