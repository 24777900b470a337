// Hub: what the ranks of a meeting tell each other, through rank 0, and the thread that carries it.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "librun/heartbeat.h"
#include "librun/meet/meeting.h"

namespace sg::meet {

class Hub {
 public:
  Hub(uint32_t rank, Meeting meeting);
  ~Hub();  // says good-bye; rank 0 stays until all others have, for a while

  uint32_t rank() const { return rank_; }
  uint32_t world() const { return static_cast<uint32_t>(hearts_.size()); }
  Heartbeat& heart(uint32_t rank) { return hearts_[rank]; }

  // All ranks' texts, by rank. Blocks until all have called it as often, or the job fails: it does if a rank leaves
  // that has called it less often.
  Result<std::vector<std::string>> exchange(std::string text);

  void fail(Error error);
  std::optional<Error> failure() const;
  // The rank that speaks of the failure; none where nobody says so in time.
  std::optional<uint32_t> wait_for_speaker(std::chrono::milliseconds patience);
  // Ends the other processes, as far as they hear of it.
  void end_all(int exit_code);

 private:
  using Texts = std::vector<std::string>;

  void carry();  // the thread
  void look_at_lines();
  void hear(uint32_t from, const Message& m);
  void left(uint32_t from);
  void lost(uint32_t from);
  void post(MessageKind kind, std::string body);  // to all at the other ends
  void post_hearts();
  void read_hearts(BodyReader in, uint32_t first, uint32_t count);
  void complete_exchange();
  std::optional<uint32_t> missing() const;
  void set_failure(Error error, uint32_t speaker);
  bool may_leave() const;
  void wake();
  uint32_t rank_of(size_t line) const { return rank_ == 0 ? static_cast<uint32_t>(line) + 1 : 0; }

  const uint32_t rank_;
  std::deque<Heartbeat> hearts_;  // by rank; but for our own, as they were told last
  std::array<Socket, 2> bell_;    // wakes the thread

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Line> lines_;                     // these under the mutex
  std::vector<bool> has_left_, is_lost_;        // by line: with a word, without one
  std::vector<std::deque<std::string>> texts_;  // rank 0: by rank, those that no exchange has taken
  std::deque<Texts> exchanged_;                 // ours to take
  std::optional<Error> failure_;
  std::optional<uint32_t> speaker_;
  bool leaves_ = false;
  std::thread thread_;
};

}  // namespace sg::meet
