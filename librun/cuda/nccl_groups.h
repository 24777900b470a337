// The NCCL communicators of one rank: one for each of its groups, created before the first step.
//
// Separate    Each group has its own communicator, even if two groups have the same ranks, and none shares resources
//             with another (splitShare = 0). NCCL runs the launches of one communicator, or of communicators that share
//             resources, one after the other in launch order, regardless of streams. With sharing, the collectives of
//             two groups, which sg-overlap runs concurrently, would queue up; and ranks that launch them in different
//             orders, as they are free to do, would deadlock. For the same reason nothing is connected during a step
//             (nccl_connect.h).
// Split       If the library can split communicators (2.18), all ranks of the job meet once, and every rank, including
//             those outside a group, splits the groups from that communicator in the file's order: one unique id and
//             one bootstrap for the job, instead of one for each part of each group. The first group that is the whole
//             job uses that communicator itself: all splits precede any collective, because NCCL requires that nothing
//             runs on a communicator while it is split. With only one group, its parts meet directly.
// Failure     Communicators are non-blocking: each call is polled, while watching the other ranks and the time.
//             Communicators that were split off are released first, however the run ends.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "librun/backend_plugin.h"
#include "librun/cuda/nccl.h"

namespace sg::cuda {

// The watchdog has this much time to name a stopped process; other ranks only know that they wait.
inline constexpr double kWatchdogFirst = 1;

class NcclGroups {
 public:
  NcclGroups(const Nccl& nccl, Communicator& host, const BackendOptions& options);
  ~NcclGroups() { abort(); }
  NcclGroups(const NcclGroups&) = delete;
  NcclGroups& operator=(const NcclGroups&) = delete;

  // By GroupId, from this rank's point of view. Errors: NCCL's; another rank's failure; a rank that does not arrive in
  // time.
  Status make(const std::vector<RankGroup>& groups);
  // Null for a group that this rank is not in, and after all communicators have been released.
  ncclComm_t of_group(size_t group) const { return group < of_group_.size() ? of_group_[group] : nullptr; }

  // NCCL may process a request in a thread of its own: returns once it is on its stream; until then nothing may be
  // added to the stream, or requested from the communicator. `call` is NCCL's name, `what` ours.
  Status issued(ncclComm_t comm, const char* call, const std::string& what) const;
  // Asynchronous errors that NCCL has found.
  Status check() const;
  // Aborts everything unfinished, and all communicators.
  void abort();
  // Releases the communicators when everything is done; every rank of the job does this, in its own thread.
  void finish();

  // How they were created, for --explain.
  std::string text() const;

 private:
  // Ranks that meet through a unique id, which the first of them creates.
  struct Meeting {
    size_t number = 0;  // equal on these ranks, and different for all meetings of each rank
    std::string whom;   // for errors
    std::span<const uint32_t> ranks;
    uint32_t position = 0;
    ncclComm_t* comm = nullptr;
  };

  Result<bool> all_split();
  Status meet(const std::vector<Meeting>& meetings);
  Status join(const Meeting& meeting, const ncclUniqueId& id);
  Status split(const std::vector<RankGroup>& groups);
  Status split_off(const RankGroup& group, ncclComm_t* comm);
  Status wait_for(ncclComm_t comm, const char* call, const std::string& what, double seconds) const;
  ncclResult_t settle(ncclComm_t comm) const;
  Status check_nccl(ncclResult_t code, const char* what) const { return nccl_.check(code, what, host_.rank()); }

  const Nccl& nccl_;
  Communicator& host_;
  const BackendOptions options_;
  std::vector<ncclComm_t> made_;      // in order of creation: that of all ranks comes first
  std::vector<ncclComm_t> of_group_;  // of these
  ncclComm_t split_off_ = nullptr;    // where NCCL's thread stores the communicator being split off
  size_t met_ = 0;                    // number of those created through an id
  std::string why_not_;  // why nothing is split, although there are groups to split; empty: it is, or there are none
};

}  // namespace sg::cuda
