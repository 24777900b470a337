#include "librun/comm/comm_local.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "librun/comm/comm_match.h"
#include "librun/comm/local_world.h"
#include "librun/comm/tickets.h"
#include "librun/thread_team.h"

namespace sg {
namespace {

using local::Channel, local::Round, local::Seat, local::World, local::kInlineBytes;

class Rank final : public Communicator {
 public:
  Rank(std::shared_ptr<World> world, uint32_t rank)
      : world_(std::move(world)), seat_(world_->seat(rank)), rank_(rank), launched_(seat_.channels.size()) {}

  ~Rank() override {
    seat_.gone = true;
    if (!active_.empty())
      world_->fail({ErrorKind::rank_failed, "rank " + std::to_string(rank_) + " ended in the middle", {}, {}});
    if (world_->anyone_sleeps()) world_->wake_all();  // who waits for this rank checks again
    if (world_->failed()) world_->settled_failure();
  }

  uint32_t rank() const override { return rank_; }
  uint32_t world() const override { return world_->world(); }
  const RankGroup& group(GroupId g) const override { return seat_.groups[g.index]; }
  void abort(Error error) override { world_->fail(std::move(error)); }
  std::optional<Error> failure() const override { return world_->failure(); }
  void use_team(ThreadTeam* team) override { team_ = team; }
  Heartbeat& heartbeat() override { return seat_.heart; }
  std::vector<WatchedRank> in_sight() override {
    std::vector<WatchedRank> out;
    for (uint32_t r = 0; r < world(); ++r) out.push_back({r, &world_->seat(r).heart});
    return out;
  }

  Result<Texts> exchange(std::string text) override {
    seat_.heart.begin_wait();
    auto out = world_->exchange(rank_, std::move(text));
    seat_.heart.end_wait();
    return out;
  }

  Result<Ticket> launch(const CollectiveCall& call) override {
    if (world_->failed()) return world_->settled_failure();
    Channel* channel = call.group.index < launched_.size() ? seat_.channels[call.group.index] : nullptr;
    if (!channel) return not_in_group(call, rank_);
    SG_TRY(check_call(call, channel->group.ranks.size()));
    Round& round = world_->post(*channel, launched_[call.group.index]++, group(call.group).position, call);
    if (world_->failed()) return world_->settled_failure();
    if (round.ready.load(std::memory_order_acquire) && round.work.bytes() <= kInlineBytes) world_->help(round);
    return active_.add(&round);
  }

  Status wait(Ticket ticket) override {
    if (ticket.id == 0) return ok_status();
    SG_ASSIGN(Round * *found, active_.find(ticket));
    Round* round = *found;
    if (!round->complete()) {
      block_in(round);
      bool done = run_until_complete(*round);
      block_in(nullptr);
      if (!done) return world_->settled_failure();
    }
    active_.remove(ticket);
    World::leave(*round);
    return ok_status();
  }

  Status drain() override {
    while (!active_.empty()) SG_TRY(wait(active_.first()));
    if (world_->failed()) return world_->settled_failure();
    return ok_status();
  }

  std::optional<BlockedIn> blocked_in() const override {
    std::lock_guard seat_lock(seat_.mutex);
    if (!seat_.blocked) return std::nullopt;
    const Round& round = *seat_.blocked;
    std::lock_guard lock(round.channel->mutex);
    const std::span<const uint32_t> ranks = round.channel->group.ranks;
    const CollectiveCall& mine = round.calls[position_in(ranks)];
    BlockedIn out{mine.kind, std::string(mine.label), round.channel->group.name, {}};
    for (size_t i = 0; i < ranks.size(); ++i)
      if (!round.came[i]) out.missing.push_back(ranks[i]);
    return out;
  }

 private:
  // Works on ready rounds, `wanted` first, and sleeps if there are none. False if the job has failed.
  bool run_until_complete(Round& wanted) {
    for (;;) {
      uint32_t seen = seat_.events.load(std::memory_order_acquire);
      if (world_->failed()) return false;
      if (wanted.ready.load(std::memory_order_acquire)) {
        if (!work_on(wanted)) return false;
        if (wanted.complete()) return true;
      }
      if (work_on_others()) continue;
      for (int i = 0; i < world_->spins() && seat_.events.load(std::memory_order_relaxed) == seen; ++i)
        __builtin_ia32_pause();
      if (seat_.events.load(std::memory_order_relaxed) != seen) continue;
      const World::Sleep sleep(world_.get());  // before the check: a rank that leaves later wakes this one
      if (!check_peers(wanted)) return false;
      seat_.events.wait(seen, std::memory_order_acquire);
    }
  }

  bool work_on(Round& round) {
    int64_t left = round.work.pieces() - round.next.load(std::memory_order_relaxed);
    if (team_ && left > 1) {
      team_->parallel_for(std::min<int64_t>(team_->size(), left), 1, [&](int64_t, int64_t) { world_->help(round); });
      return !world_->failed();
    }
    return world_->help(round);
  }

  bool work_on_others() {
    for (auto& [id, round] : active_)
      if (round->has_work()) return work_on(*round), true;
    return false;
  }

  // Fails the job if a member that has not arrived has already left. False if the job has failed.
  bool check_peers(Round& wanted) {
    const std::span<const uint32_t> ranks = wanted.channel->group.ranks;
    std::unique_lock lock(wanted.channel->mutex);
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (wanted.came[i] || !world_->seat(ranks[i]).gone) continue;
      const CollectiveCall& mine = wanted.calls[position_in(ranks)];
      Error error{ErrorKind::rank_failed,
                  "rank " + std::to_string(ranks[i]) + " ended without " + std::string(collective_name(mine.kind)) +
                      " %" + std::string(mine.label) + ", for which rank " + std::to_string(rank_) + " waits",
                  {},
                  {}};
      lock.unlock();
      world_->fail(std::move(error));
      return false;
    }
    return true;
  }

  size_t position_in(std::span<const uint32_t> ranks) const {
    return static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
  }

  void block_in(const Round* round) {
    {
      std::lock_guard lock(seat_.mutex);
      seat_.blocked = round;
    }
    round ? seat_.heart.begin_wait() : seat_.heart.end_wait();
  }

  std::shared_ptr<World> world_;
  Seat& seat_;
  uint32_t rank_;
  ThreadTeam* team_ = nullptr;
  std::vector<uint64_t> launched_;  // by GroupId: number of launches so far
  Tickets<Round*> active_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(const Job& job) {
  auto world = std::make_shared<World>(job);
  std::vector<std::unique_ptr<Communicator>> out;
  for (uint32_t r = 0; r < job.world; ++r) out.push_back(std::make_unique<Rank>(world, r));
  return out;
}

}  // namespace sg
