// Child processes: how one begins, and which are running.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>

namespace sg::cli {

// Runs between fork and exec in a multithreaded program: system calls only. 127 = the program cannot be run.
[[noreturn]] void become(char* const* words, int in, int out, int err);

// The running children (or their groups), for a signal handler to end. More than it has places for are not in it.
class Children {
 public:
  // One child, for as long as its id is its own: until it is waited for.
  class Place {
   public:
    Place(Children* children, pid_t child);
    ~Place() { leave(); }
    Place(const Place&) = delete;
    void leave();

   private:
    std::atomic<pid_t>* at_ = nullptr;
  };

  // Takes each out and calls fn(child), also from a signal handler.
  template <class Fn>
  void take_each(const Fn& fn) {
    for (std::atomic<pid_t>& place : places_)
      if (const pid_t child = place.exchange(0); child != 0) fn(child);
  }

 private:
  static constexpr size_t kMost = 256;
  std::atomic<pid_t> places_[kMost] = {};  // 0 = free
};

}  // namespace sg::cli
