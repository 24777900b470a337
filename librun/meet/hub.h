// Hub: messages between the ranks of a meeting, through rank 0, and the thread that transfers them.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "librun/comm/heartbeat.h"
#include "librun/meet/meeting.h"

namespace sg::meet {

class Hub {
 public:
  Hub(uint32_t rank, Meeting meeting);
  ~Hub();  // says goodbye; rank 0 stays for a while, until all others have left

  uint32_t rank() const { return rank_; }
  uint32_t world() const { return static_cast<uint32_t>(hearts_.size()); }
  Heartbeat& heart(uint32_t rank) { return hearts_[rank]; }

  // Returns all ranks' texts, by rank. Blocks until all ranks have called it equally often, or the job fails, as it
  // does if a rank leaves that has called it less often.
  Result<std::vector<std::string>> exchange(std::string text);

  void fail(Error error);
  std::optional<Error> failure() const;
  // The rank that reports the failure; none if that is not known in time.
  std::optional<uint32_t> wait_for_speaker(std::chrono::milliseconds patience);
  // Ends the other processes, as far as they can be reached.
  void end_all(int exit_code);

 private:
  using Texts = std::vector<std::string>;

  void carry();  // the thread
  void look_at_lines();
  void hear(uint32_t from, const Message& m);
  void left(uint32_t from);
  void lost(uint32_t from);
  void post(MessageKind kind, std::string body);  // to all peers
  void post_hearts();
  void read_hearts(BodyReader in, uint32_t first, uint32_t count);
  void complete_exchange();
  std::optional<uint32_t> missing() const;
  void set_failure(Error error, uint32_t speaker);
  bool may_leave() const;
  void wake();
  uint32_t rank_of(size_t line) const { return rank_ == 0 ? static_cast<uint32_t>(line) + 1 : 0; }

  const uint32_t rank_;
  std::deque<Heartbeat> hearts_;  // by rank; those of other ranks as last received
  std::array<Socket, 2> bell_;    // wakes the thread

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Line> lines_;                     // protected by the mutex, like the following
  std::vector<bool> has_left_, is_lost_;        // by line: with or without a goodbye
  std::vector<std::deque<std::string>> texts_;  // rank 0: by rank, those not yet taken by an exchange
  std::deque<Texts> exchanged_;                 // ready for us to take
  std::optional<Error> failure_;
  std::optional<uint32_t> speaker_;
  bool leaves_ = false;
  std::thread thread_;
};

}  // namespace sg::meet
