// A communicator for device tensors on top of a host communicator, which provides ranks, groups, texts and failures.
#pragma once

#include "librun/comm/comm.h"

namespace sg::cuda {

class CommunicatorOver : public Communicator {
 public:
  explicit CommunicatorOver(Communicator& host) : host_(host) {}

  uint32_t rank() const override { return host_.rank(); }
  uint32_t world() const override { return host_.world(); }
  const RankGroup& group(GroupId g) const override { return host_.group(g); }
  Result<Texts> exchange(std::string text) override { return host_.exchange(std::move(text)); }
  void abort(Error error) override { host_.abort(std::move(error)); }
  std::optional<Error> failure() const override { return host_.failure(); }
  std::optional<BlockedIn> blocked_in() const override { return host_.blocked_in(); }
  bool speaks_of_failure() override { return host_.speaks_of_failure(); }
  Heartbeat& heartbeat() override { return host_.heartbeat(); }
  std::vector<WatchedRank> in_sight() override { return host_.in_sight(); }
  std::vector<uint32_t> ranks_of_machine() override { return host_.ranks_of_machine(); }
  void end_all(int exit_code) override { host_.end_all(exit_code); }

 protected:
  Communicator& host_;
};

}  // namespace sg::cuda
