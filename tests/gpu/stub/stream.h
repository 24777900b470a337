// Streams and events of the stand-in of the driver: a stream is a thread that works on a queue.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/stub/guard.h"

namespace stub {

class Stream {
 public:
  explicit Stream(uintptr_t of_context, int with_priority = 0)
      : context(of_context), priority(with_priority), thread_([this] { work(); }) {}
  ~Stream() {
    {
      std::lock_guard guard(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void add(std::function<void()> job) {
    if (is_recorded_) return recorded_.push_back(std::move(job));  // by the thread that launches
    if (Guard* guard = Guard::find()) return guard->run(job);
    {
      std::lock_guard guard(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_all();
  }
  const uintptr_t context;  // where it was created
  const int priority;
  using Graph = std::vector<std::function<void()>>;
  bool is_recorded() const { return is_recorded_; }
  bool record() { return !std::exchange(is_recorded_, true); }
  void spoil() { is_spoiled_ = true; }
  // Null: something was done that cannot be recorded.
  std::unique_ptr<Graph> end_recording() {
    is_recorded_ = false;
    auto out = std::make_unique<Graph>(std::move(recorded_));
    recorded_.clear();
    if (std::exchange(is_spoiled_, false)) return nullptr;
    return out;
  }
  bool idle() {
    std::lock_guard guard(mutex_);
    return jobs_.empty() && !busy_;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return jobs_.empty() && !busy_; });
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      busy_ = true;
      lock.unlock();
      job();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool busy_ = false, stop_ = false, is_recorded_ = false, is_spoiled_ = false;
  Graph recorded_;
  std::thread thread_;
};

// One recording of an event, and when the stream came to it; a wait holds on to the recording that was the last when it
// was asked for.
struct Mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  std::chrono::steady_clock::time_point at;
  void reach() {
    std::lock_guard guard(mutex);
    reached = true;
    at = std::chrono::steady_clock::now();
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached; });
  }
  bool is_reached() {
    std::lock_guard guard(mutex);
    return reached;
  }
};
struct Event {
  bool is_timed = true;
  uintptr_t context = 0;
  std::shared_ptr<Mark> mark;
};

}  // namespace stub
