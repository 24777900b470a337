#include "librun/meet/comm_star.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "librun/meet/hub.h"
#include "librun/meet/meeting.h"

namespace sg {
namespace {

using meet::Hub;

constexpr std::chrono::seconds kLastWord{2};  // for the process that reports a failure
constexpr size_t kLongestText = size_t{1} << 28;

class StarCommunicator final : public Communicator {
 public:
  StarCommunicator(const Job& job, uint32_t rank, meet::Meeting meeting)
      : groups_(groups_of_rank(job, rank)), machines_(meeting.machines), hub_(rank, std::move(meeting)) {}

  uint32_t rank() const override { return hub_.rank(); }
  uint32_t world() const override { return hub_.world(); }
  const RankGroup& group(GroupId g) const override { return groups_[g.index]; }
  Heartbeat& heartbeat() override { return hub_.heart(rank()); }
  std::vector<WatchedRank> in_sight() override {
    std::vector<WatchedRank> out;
    for (uint32_t r = 0; r < world(); ++r) out.push_back({r, &hub_.heart(r)});
    return out;
  }
  std::vector<uint32_t> ranks_of_machine() override {
    std::vector<uint32_t> out;
    for (uint32_t r = 0; r < world(); ++r)
      if (machines_[r] == machines_[rank()]) out.push_back(r);
    return out;
  }

  Result<Ticket> launch(const CollectiveCall& call) override {
    return Error{ErrorKind::internal, std::string(collective_name(call.kind)) + " %" + std::string(call.label) +
                                          ": ranks that met over TCP move no tensors by themselves"};
  }
  Status wait(Ticket) override { return ok_status(); }
  Status drain() override { return ok_status(); }

  Result<Texts> exchange(std::string text) override {
    if (text.size() > kLongestText)
      return Error{ErrorKind::cannot_apply, "what the ranks have to tell each other is too long"};
    heartbeat().begin_wait();
    auto out = hub_.exchange(std::move(text));
    heartbeat().end_wait();
    if (!out.ok()) return out.error();
    return Texts(std::move(*out));
  }

  void abort(Error error) override { hub_.fail(std::move(error)); }
  std::optional<Error> failure() const override { return hub_.failure(); }
  std::optional<BlockedIn> blocked_in() const override { return std::nullopt; }

  bool speaks_of_failure() override {
    const std::optional<uint32_t> speaker = hub_.wait_for_speaker(kLastWord);
    if (speaker == rank()) return true;
    std::this_thread::sleep_for(kLastWord);
    return !speaker;
  }
  void end_all(int exit_code) override { hub_.end_all(exit_code); }

 private:
  std::vector<RankGroup> groups_;  // by GroupId
  std::vector<std::string> machines_;
  Hub hub_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> make_star_communicator(const Job& job, const LaunchEnv& env,
                                                             const meet::MeetingPlace& place,
                                                             const StarOptions& options) {
  if (env.world != job.world) {
    // Rank 0 reports for all; its launcher then ends the others.
    if (env.rank != 0) std::this_thread::sleep_for(kLastWord);
    return Error{ErrorKind::cannot_apply,
                 "the job has " + std::to_string(job.world) + " ranks, the variables of " + env.family + " mention " +
                     std::to_string(env.world),
                 {},
                 "start " + std::to_string(job.world) + " processes"};
  }
  meet::MeetingOptions how{env.rank, env.world, options.timeout_s, options.say};
  SG_ASSIGN(meet::Meeting meeting, meet_ranks(place, how));
  return std::unique_ptr<Communicator>(new StarCommunicator(job, env.rank, std::move(meeting)));
}

}  // namespace sg
