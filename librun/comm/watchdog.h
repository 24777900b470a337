// Watchdog: notices a rank that makes no progress, and reports which one and where.
//
// A rank is stuck if it is, in this order, one
//   whose process does not run (stopped, swapped out)   for `timeout` seconds, even before its first step, or
//   that is in one node                                 for `timeout` seconds, or
//   that waits in one collective                        for `timeout` seconds while no rank in sight computes.
// In sight are the ranks of this process and, with MPI, those of this host.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "libgraph/job.h"
#include "librun/comm/comm.h"
#include "librun/comm/heartbeat.h"

namespace sg {

struct Stuck {
  enum class How : uint8_t { stopped, node, wait };
  uint32_t rank = 0;
  How how = How::node;
  uint64_t place = 0;  // Heartbeat::place
  double seconds = 0;
  uint32_t reporter = 0;  // the rank whose process should report first
};

// The decision alone: no clock, no thread.
class Watchdog {
 public:
  Watchdog(std::vector<WatchedRank> ranks, double timeout_s);

  // Call it at least once per second, with the seconds of a steady clock. If a call comes late, the watcher itself was
  // stopped: that time is not counted.
  std::optional<Stuck> look(double now_s);

 private:
  struct Seen {
    uint64_t beats = 0;
    uint32_t alive = 0;
    double moved_s = 0, alive_s = 0;  // when it was last seen changing
  };
  void update(double now_s);
  uint32_t reporter_other_than(uint32_t rank) const;

  std::vector<WatchedRank> ranks_;
  std::vector<Seen> seen_;
  double timeout_s_;
  std::optional<double> looked_s_;
};

// "%mm_3 (model.py:12)" for a Heartbeat::place. Empty if the job lacks the rank's program, or the rank has not begun.
std::string node_text(const Job& job, uint32_t rank, uint64_t place);

// The error for the user: rank, node, source line, collective. `own`: the communicators of this process's ranks.
Error stuck_error(const Job& job, const Stuck& stuck, std::span<Communicator* const> own);

// A thread that watches while this object lives; `own` must outlive it. `on_stuck` is called once, from that thread: it
// should report the error, abort the communicators and, if the ranks do not return soon, end the process.
class WatchdogThread {
 public:
  WatchdogThread(const Job& job, std::vector<Communicator*> own, double timeout_s, std::function<void(Error)> on_stuck);
  ~WatchdogThread();
  WatchdogThread(const WatchdogThread&) = delete;

 private:
  void watch();
  void show_life();
  bool pause(double seconds);  // false: asked to stop
  bool is_own(uint32_t rank) const;

  const Job& job_;
  std::vector<Communicator*> own_;
  std::function<void(Error)> on_stuck_;
  Watchdog watchdog_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace sg
