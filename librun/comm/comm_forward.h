// A communicator that forwards everything to another: a base for those that change one thing.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "librun/comm/comm.h"

namespace sg {

class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  uint32_t rank() const override { return inner_->rank(); }
  uint32_t world() const override { return inner_->world(); }
  const RankGroup& group(GroupId g) const override { return inner_->group(g); }
  Result<Ticket> launch(const CollectiveCall& call) override { return inner_->launch(call); }
  Status wait(Ticket ticket) override { return inner_->wait(ticket); }
  Status drain() override { return inner_->drain(); }
  void progress() override { inner_->progress(); }
  Result<Texts> exchange(std::string text) override { return inner_->exchange(std::move(text)); }
  void abort(Error error) override { inner_->abort(std::move(error)); }
  std::optional<Error> failure() const override { return inner_->failure(); }
  std::optional<BlockedIn> blocked_in() const override { return inner_->blocked_in(); }
  bool speaks_of_failure() override { return inner_->speaks_of_failure(); }
  Heartbeat& heartbeat() override { return inner_->heartbeat(); }
  std::vector<WatchedRank> in_sight() override { return inner_->in_sight(); }
  std::vector<uint32_t> ranks_of_machine() override { return inner_->ranks_of_machine(); }
  void end_all(int exit_code) override { inner_->end_all(exit_code); }
  void use_team(ThreadTeam* team) override { inner_->use_team(team); }

 protected:
  using Clock = std::chrono::system_clock;
  static constexpr std::chrono::milliseconds kNap{1};  // polling interval

  // Sleeps until `end` while advancing launched collectives; ends early, with its error, if the job fails.
  Status sleep_until(Clock::time_point end) {
    for (Clock::time_point now; (now = Clock::now()) < end;) {
      if (std::optional<Error> failed = inner_->failure()) return std::move(*failed);
      inner_->progress();
      std::this_thread::sleep_for(std::min<Clock::duration>(end - now, kNap));
    }
    return ok_status();
  }

  std::unique_ptr<Communicator> inner_;
};

}  // namespace sg
