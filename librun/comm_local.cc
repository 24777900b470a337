#include "librun/comm_local.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "librun/comm_match.h"
#include "librun/comm_work.h"
#include "librun/thread_team.h"

namespace sg {
namespace {

// How often a rank polls before it sleeps, if each rank has a core; otherwise another rank needs this core.
constexpr int kSpins = 2000;
// Work that the last member to launch does immediately, because it costs less than waking another one.
constexpr int64_t kInlineBytes = 64 << 10;

// Takes a lock that is only ever held briefly: spinning is cheaper than sleeping.
std::unique_lock<std::mutex> lock_briefly(std::mutex& mutex) {
  std::unique_lock lock(mutex, std::try_to_lock);
  for (int i = 0; i < 100 && !lock; ++i) {
    __builtin_ia32_pause();
    (void)lock.try_lock();
  }
  if (!lock) lock.lock();
  return lock;
}

struct Channel;

// One collective of a channel, from the first launch to the last member's wait.
struct Round {
  Channel* channel = nullptr;
  std::vector<CollectiveCall> calls;  // by group rank; valid where `came` is set
  std::vector<bool> came;
  size_t arrived = 0;              // protected by the channel's mutex, like `calls` and `came`, until `ready`
  std::atomic<bool> ready{false};  // all have arrived and `work` is prepared
  CollectiveWork work;
  std::atomic<int64_t> next{0}, finished{0};  // piece counters
  std::atomic<size_t> left{0};                // members that have finished waiting

  bool complete() const {
    return ready.load(std::memory_order_acquire) && finished.load(std::memory_order_acquire) == work.pieces();
  }
};

// One group: its members' collectives in order. Rounds fill up in the same order.
struct Channel {
  RankGroup group;
  std::mutex mutex;
  std::deque<Round*> open;  // not all members have arrived; the first has number `first_open`
  uint64_t first_open = 0;
  std::vector<std::unique_ptr<Round>> rounds;  // as many as were ever needed at once
  std::vector<Round*> unused;
};

class Rank;

// State shared by the ranks.
class World {
 public:
  explicit World(const Job& job) : seats_(job.world), given_(job.world) {
    spins_ = std::thread::hardware_concurrency() >= job.world ? kSpins : 20;
    std::vector<std::vector<RankGroup>> groups = groups_of_all_ranks(job);
    std::map<std::string_view, Channel*> by_digest;
    for (uint32_t r = 0; r < job.world; ++r) {
      seats_[r].groups = std::move(groups[r]);
      for (const RankGroup& g : seats_[r].groups) {
        Channel*& channel = by_digest[g.digest];
        if (!channel && !g.ranks.empty()) {
          channels_.push_back(std::make_unique<Channel>());
          channel = channels_.back().get();
          channel->group = g;
        }
        seats_[r].channels.push_back(channel);
      }
    }
  }

  // A rank as seen by the others.
  struct Seat {
    std::vector<RankGroup> groups;  // by GroupId, like channels
    std::vector<Channel*> channels;
    std::atomic<uint32_t> events{0};  // incremented when something may have changed for a sleeping rank
    std::atomic<bool> gone{false};
    Heartbeat heart;
    std::mutex mutex;
    const Round* blocked = nullptr;  // protected by the mutex
  };

  uint32_t world() const { return static_cast<uint32_t>(seats_.size()); }
  Seat& seat(uint32_t rank) { return seats_[rank]; }
  int spins() const { return spins_; }

  void wake(uint32_t rank) {
    seats_[rank].events.fetch_add(1, std::memory_order_release);
    seats_[rank].events.notify_all();
  }
  void wake(const Channel& channel) {
    for (uint32_t r : channel.group.ranks) wake(r);
  }
  void wake_all() {
    for (uint32_t r = 0; r < world(); ++r) wake(r);
    std::lock_guard lock(text_mutex_);
    text_changed_.notify_all();
  }

  void fail(Error error) {
    {
      std::lock_guard lock(failure_mutex_);
      if (!failure_) failure_ = std::move(error);
      failed_ = true;
    }
    wake_all();
  }
  bool failed() const { return failed_; }
  std::optional<Error> failure() const {
    std::lock_guard lock(failure_mutex_);
    return failure_;
  }

  // The failure, once no thread touches any rank's memory any more.
  Error settled_failure() {
    while (busy_ != 0) std::this_thread::yield();
    return *failure();
  }

  // Runs pieces of `round` until none is left to take. False if the job has failed.
  bool help(Round& round) {
    const Channel& channel = *round.channel;
    int64_t pieces = round.work.pieces();
    while (round.next.load(std::memory_order_relaxed) < pieces) {
      // `busy_` is raised before `failed_` is read; `fail` and `settled_failure` do the reverse, so one of them sees
      // the other.
      ++busy_;
      if (failed_) {
        --busy_;
        return false;
      }
      int64_t piece = round.next.fetch_add(1, std::memory_order_relaxed);
      if (piece < pieces) round.work.run(piece);
      --busy_;
      if (piece < pieces && round.finished.fetch_add(1, std::memory_order_acq_rel) + 1 == pieces) wake(channel);
    }
    return !failed_;
  }

  // Returns all texts to every rank, once all have given theirs even if the job fails meanwhile. The next exchange begins
  // only after all ranks have taken the texts of this one.
  Result<Texts> exchange(uint32_t rank, std::string text) {
    std::unique_lock lock(text_mutex_);
    text_changed_.wait(lock, [&] { return failed_ || !texts_left_to_take_; });
    if (failed_) return *failure();
    given_[rank] = std::move(text);
    if (++texts_given_ == world()) {
      texts_left_to_take_ = world();
      texts_.emplace(std::exchange(given_, std::vector<std::string>(world())));
      text_changed_.notify_all();
    }
    text_changed_.wait(lock, [&] { return failed_ || texts_left_to_take_; });
    if (!texts_left_to_take_) return *failure();
    Texts out = *texts_;
    if (--texts_left_to_take_ == 0) {
      texts_given_ = 0;
      texts_.reset();
      text_changed_.notify_all();
    }
    return out;
  }

 private:
  std::vector<std::unique_ptr<Channel>> channels_;
  std::deque<Seat> seats_;
  int spins_;
  std::atomic<int> busy_{0};  // number of pieces being run
  std::atomic<bool> failed_{false};
  mutable std::mutex failure_mutex_;
  std::optional<Error> failure_;
  std::mutex text_mutex_;
  std::condition_variable text_changed_;
  std::vector<std::string> given_;  // by rank, until all have given theirs
  std::optional<Texts> texts_;      // until all have taken them
  uint32_t texts_given_ = 0, texts_left_to_take_ = 0;
};

Error unknown_group(const CollectiveCall& call, uint32_t rank) {
  return Error{ErrorKind::cannot_apply,
               std::string(collective_name(call.kind)) + " %" + std::string(call.label) + ": rank " +
                   std::to_string(rank) + " is not in the group",
               {},
               {}};
}

class Rank final : public Communicator {
 public:
  Rank(std::shared_ptr<World> world, uint32_t rank)
      : world_(std::move(world)), seat_(world_->seat(rank)), rank_(rank), launched_(seat_.channels.size()) {}

  ~Rank() override {
    seat_.gone = true;
    if (!active_.empty())
      world_->fail({ErrorKind::rank_failed, "rank " + std::to_string(rank_) + " ended in the middle", {}, {}});
    world_->wake_all();  // ranks that wait for this one check again
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
    if (!channel) return unknown_group(call, rank_);
    SG_TRY(check_call(call, channel->group.ranks.size()));
    Round& round = post(*channel, launched_[call.group.index]++, group(call.group).position, call);
    if (world_->failed()) return world_->settled_failure();
    if (round.ready.load(std::memory_order_acquire) && round.work.bytes() <= kInlineBytes) world_->help(round);
    return Ticket{add(round)};
  }

  Status wait(Ticket ticket) override {
    if (ticket.id == 0) return ok_status();
    Round* round = find(ticket.id);
    if (!round) return Error{ErrorKind::internal, "a ticket was waited for twice", {}, {}};
    if (!round->complete()) {
      block_in(round);
      bool done = run_until_complete(*round);
      block_in(nullptr);
      if (!done) return world_->settled_failure();
    }
    leave(ticket.id, *round);
    return ok_status();
  }

  Status drain() override {
    while (!active_.empty()) SG_TRY(wait(Ticket{active_.front().id}));
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
  struct Active {
    uint64_t id;
    Round* round;
  };

  // Adds the call to round `number` of the channel; the last member to arrive prepares the work and wakes the others.
  Round& post(Channel& channel, uint64_t number, uint32_t position, const CollectiveCall& call) {
    std::unique_lock lock = lock_briefly(channel.mutex);
    Round& round = round_at(channel, number);
    round.calls[position] = call;
    round.came[position] = true;
    if (++round.arrived != round.calls.size()) return round;
    channel.open.pop_front();  // earlier rounds are full, because every member reached them first
    ++channel.first_open;
    lock.unlock();
    if (Status s = check_match(round.calls, channel.group); !s.ok()) {
      world_->fail(s.error());
      return round;
    }
    round.work.prepare(round.calls);
    round.ready.store(true, std::memory_order_release);
    if (round.work.bytes() > kInlineBytes || round.work.pieces() == 0) world_->wake(channel);
    return round;
  }

  static Round& round_at(Channel& channel, uint64_t number) {
    size_t index = number - channel.first_open;
    if (index < channel.open.size()) return *channel.open[index];
    if (channel.unused.empty()) {
      channel.rounds.push_back(std::make_unique<Round>());
      channel.unused.push_back(channel.rounds.back().get());
    }
    Round* round = channel.unused.back();
    channel.unused.pop_back();
    size_t members = channel.group.ranks.size();
    round->channel = &channel;
    round->calls.assign(members, {});
    round->came.assign(members, false);
    round->arrived = 0;
    round->ready = false;
    round->next = round->finished = 0;
    round->left = 0;
    channel.open.push_back(round);
    return *round;
  }

  uint64_t add(Round& round) {
    active_.push_back({++last_id_, &round});
    return last_id_;
  }

  Round* find(uint64_t id) const {
    auto at =
        std::lower_bound(active_.begin(), active_.end(), id, [](const Active& a, uint64_t i) { return a.id < i; });
    return at != active_.end() && at->id == id ? at->round : nullptr;
  }

  void leave(uint64_t id, Round& round) {
    active_.erase(
        std::lower_bound(active_.begin(), active_.end(), id, [](const Active& a, uint64_t i) { return a.id < i; }));
    Channel& channel = *round.channel;
    if (round.left.fetch_add(1, std::memory_order_acq_rel) + 1 != channel.group.ranks.size()) return;
    std::unique_lock lock = lock_briefly(channel.mutex);
    channel.unused.push_back(&round);
  }

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
      if (!check_peers(wanted)) return false;
      seat_.events.wait(seen, std::memory_order_acquire);
    }
  }

  static bool has_work(const Round& round) {
    return round.ready.load(std::memory_order_acquire) &&
           round.next.load(std::memory_order_relaxed) < round.work.pieces();
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
    for (const Active& a : active_)
      if (has_work(*a.round)) return work_on(*a.round), true;
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
  World::Seat& seat_;
  uint32_t rank_;
  ThreadTeam* team_ = nullptr;
  std::vector<uint64_t> launched_;  // by GroupId: number of launches so far
  std::vector<Active> active_;      // launched and not waited for, by ascending id
  uint64_t last_id_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(const Job& job) {
  auto world = std::make_shared<World>(job);
  std::vector<std::unique_ptr<Communicator>> out;
  for (uint32_t r = 0; r < job.world; ++r) out.push_back(std::make_unique<Rank>(world, r));
  return out;
}

}  // namespace sg
