// What ranks that are threads of one process share: the collectives under way in each group, and the job's failure.
//
// Rounds   A collective is a round of its group's channel, from its first launch to its last member's wait. The
//          members' rounds of a channel are numbered alike; the last member to launch one prepares its work, and all
//          that wait for it do the work, piece by piece.
// Failure  The first error given is that of all ranks. After `settled_failure` nobody touches a rank's memory any more.
// Threads  Everything may be called from any rank's thread; members say which mutex protects them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "libgraph/base/result.h"
#include "librun/comm/comm.h"
#include "librun/comm/comm_work.h"
#include "librun/comm/heartbeat.h"

namespace sg::local {

// Work that the last member to launch does immediately, because it costs less than waking another one.
inline constexpr int64_t kInlineBytes = 64 << 10;

struct Channel;

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
  bool has_work() const {
    return ready.load(std::memory_order_acquire) && next.load(std::memory_order_relaxed) < work.pieces();
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

// A rank as seen by the others.
struct Seat {
  std::vector<RankGroup> groups;    // by GroupId, like channels
  std::vector<Channel*> channels;   // null where the rank is in no part of the group
  std::atomic<uint32_t> events{0};  // incremented when something may have changed for a sleeping rank
  std::atomic<bool> gone{false};
  Heartbeat heart;
  std::mutex mutex;
  const Round* blocked = nullptr;  // protected by the mutex
};

class World {
 public:
  explicit World(const Job& job);

  uint32_t world() const { return static_cast<uint32_t>(seats_.size()); }
  Seat& seat(uint32_t rank) { return seats_[rank]; }
  int spins() const { return spins_; }

  void wake(uint32_t rank);
  void wake(const Channel& channel);
  void wake_all();

  // While it exists, a rank sleeps, or is about to.
  class Sleep {
   public:
    explicit Sleep(World* world) : world_(world) { ++world_->sleeping_; }
    ~Sleep() { --world_->sleeping_; }
    Sleep(const Sleep&) = delete;

   private:
    World* world_;
  };
  bool anyone_sleeps() const { return sleeping_ != 0; }

  void fail(Error error);
  bool failed() const { return failed_; }
  std::optional<Error> failure() const;
  // The failure, once no thread touches any rank's memory any more. REQUIRES: failed()
  Error settled_failure();

  // Adds the call to round `number` of the channel; the last member to arrive prepares the work and wakes the others.
  Round& post(Channel& channel, uint64_t number, uint32_t position, const CollectiveCall& call);
  // Runs pieces of `round` until none is left to take. False if the job has failed. REQUIRES: round.ready
  bool help(Round& round);
  // A member has finished waiting: after the last one the round is used again.
  static void leave(Round& round);

  // Returns all texts to every rank, once all have given theirs even if the job fails meanwhile. The next exchange
  // begins only after all ranks have taken the texts of this one.
  Result<Texts> exchange(uint32_t rank, std::string text);

 private:
  std::vector<std::unique_ptr<Channel>> channels_;
  std::deque<Seat> seats_;
  int spins_;                 // how often a rank polls before it sleeps
  std::atomic<int> busy_{0};  // number of pieces being run
  std::atomic<uint32_t> sleeping_{0};
  std::atomic<bool> failed_{false};
  mutable std::mutex failure_mutex_;
  std::optional<Error> failure_;
  std::mutex text_mutex_;
  std::condition_variable text_changed_;
  std::vector<std::string> given_;  // by rank, until all have given theirs
  std::optional<Texts> texts_;      // until all have taken them
  uint32_t texts_given_ = 0, texts_left_to_take_ = 0;
};

}  // namespace sg::local
