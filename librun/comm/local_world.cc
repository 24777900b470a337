#include "librun/comm/local_world.h"

#include <map>
#include <thread>
#include <utility>

#include "librun/comm/comm_match.h"

namespace sg::local {
namespace {

// How often a rank polls before it sleeps, if each rank has a core; otherwise another rank needs this core.
constexpr int kSpins = 2000, kSpinsOnSharedCore = 20;

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

Round& round_at(Channel& channel, uint64_t number) {
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

}  // namespace

World::World(const Job& job) : seats_(job.world), given_(job.world) {
  spins_ = std::thread::hardware_concurrency() >= job.world ? kSpins : kSpinsOnSharedCore;
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

void World::wake(uint32_t rank) {
  seats_[rank].events.fetch_add(1, std::memory_order_release);
  seats_[rank].events.notify_all();
}

void World::wake(const Channel& channel) {
  for (uint32_t r : channel.group.ranks) wake(r);
}

void World::wake_all() {
  for (uint32_t r = 0; r < world(); ++r) wake(r);
  std::lock_guard lock(text_mutex_);
  text_changed_.notify_all();
}

void World::fail(Error error) {
  {
    std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::move(error);
    failed_ = true;
  }
  wake_all();
}

std::optional<Error> World::failure() const {
  std::lock_guard lock(failure_mutex_);
  return failure_;
}

Error World::settled_failure() {
  while (busy_ != 0) std::this_thread::yield();
  return *failure();
}

Round& World::post(Channel& channel, uint64_t number, uint32_t position, const CollectiveCall& call) {
  std::unique_lock lock = lock_briefly(channel.mutex);
  Round& round = round_at(channel, number);
  round.calls[position] = call;
  round.came[position] = true;
  if (++round.arrived != round.calls.size()) return round;
  channel.open.pop_front();  // earlier rounds are full, because every member reached them first
  ++channel.first_open;
  lock.unlock();
  if (Status s = check_match(round.calls, channel.group); !s.ok()) {
    fail(s.error());
    return round;
  }
  round.work.prepare(round.calls);
  round.ready.store(true, std::memory_order_release);
  if (round.work.bytes() > kInlineBytes || round.work.pieces() == 0) wake(channel);
  return round;
}

bool World::help(Round& round) {
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

void World::leave(Round& round) {
  Channel& channel = *round.channel;
  if (round.left.fetch_add(1, std::memory_order_acq_rel) + 1 != channel.group.ranks.size()) return;
  std::unique_lock lock = lock_briefly(channel.mutex);
  channel.unused.push_back(&round);
}

Result<Texts> World::exchange(uint32_t rank, std::string text) {
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

}  // namespace sg::local
