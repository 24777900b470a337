// The NCCL communicators of one rank: one for each group of the job that it is in, made before the first step.
//
// Own ones    Each group has a communicator of its own, also where two groups have the same ranks, and none shares
//             resources with another (splitShare = 0). NCCL runs what one communicator, or one family that shares, has
//             launched one after the other, in the order of the launches, whatever their streams. Then the collectives
//             of two groups, which sg-overlap puts beside each other, would queue up; and ranks that launch them in
//             different orders, which is theirs to choose, would wait for each other for ever.
// Split       Where the library can split (2.18), all ranks of the job meet once and the groups are split from that
//             communicator, in the file's order, by every rank, also by those that are in no part of a group: one
//             unique id and one bootstrap for the job instead of one for each part of each group. The first group that
//             is the whole job takes that communicator itself: all splits come before any collective, as NCCL wants
//             nothing under way on what it splits. One group alone has nothing to gain: its parts meet by themselves.
// Failure     Communicators are non-blocking: each is waited for, with an eye on the other ranks and the time.
//             Those that were split off go first, however the run ends.
#pragma once

#include <string>
#include <vector>

#include "librun/backend_plugin.h"
#include "librun/cuda/nccl.h"

namespace sg::cuda {

// A process that is stopped is named by the watchdog, in this time; the others only know that they wait.
inline constexpr double kWatchdogFirst = 1;

class NcclGroups {
 public:
  NcclGroups(const Nccl& nccl, Communicator& host, const BackendOptions& options);
  ~NcclGroups() { abort(); }
  NcclGroups(const NcclGroups&) = delete;
  NcclGroups& operator=(const NcclGroups&) = delete;

  // By GroupId, as this rank sees them. Errors: NCCL's; another rank's failure; one that does not come in time.
  Status make(const std::vector<RankGroup>& groups);
  // Null for a group that this rank is in no part of, and when all have been given up.
  ncclComm_t of_group(size_t group) const { return group < of_group_.size() ? of_group_[group] : nullptr; }

  // NCCL may go on with what it was asked for by a thread of its own: returns when that is on its stream, and before it
  // nothing may be put behind it, nor asked of the communicator. `call` is NCCL's, `what` ours.
  Status issued(ncclComm_t comm, const char* call, const std::string& what) const;
  // What NCCL has found out by itself.
  Status check() const;
  // Ends what is under way, and all communicators.
  void abort();
  // Gives them back when all is done: every rank of the job does.
  void finish();

  // How they came to be, for --explain.
  std::string text() const;

 private:
  // Ranks that meet by an id, which the first of them gives.
  struct Meeting {
    size_t number = 0;  // equal on these ranks, and different for all meetings of each
    std::string whom;   // for errors
    std::vector<uint32_t> ranks;
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
  std::vector<ncclComm_t> made_;      // in the order of their making: that of all ranks is the first
  std::vector<ncclComm_t> of_group_;  // of these
  ncclComm_t split_off_ = nullptr;    // where NCCL's own thread puts the one that is being split off
  size_t met_ = 0;                    // of those: by an id
  std::string why_not_;  // nothing is split though there are groups to split; empty: it is, or there are none
};

}  // namespace sg::cuda
