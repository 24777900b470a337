// Heartbeat: what one rank is doing, for observers in other threads, and in other processes through shared memory.
//
// Costs one or two stores per node; only the rank writes, except for `alive`, which its process's watchdog writes.
#pragma once

#include <atomic>
#include <cstdint>

#include "libgraph/base/ids.h"

namespace sg {

struct alignas(64) Heartbeat {
  enum State : uint32_t { idle, running, waiting };  // idle: not started or finished; waiting: for other ranks

  std::atomic<uint64_t> beats{0};
  std::atomic<uint64_t> place{0};  // the nested graph's number + 1 (0 = the main graph) << 32 | the node's number
  std::atomic<uint32_t> state{idle};
  std::atomic<uint32_t> alive{0};  // incremented by the process's own watchdog; 0 = it has none

  // The rank begins this node.
  void at(NestedId nested, NodeId node) {
    place.store(uint64_t{nested.index + 1u} << 32 | node.index, std::memory_order_relaxed);
    beat();
  }
  void enter(State s) {
    state.store(s, std::memory_order_relaxed);
    beat();
  }
  // Around a wait for other ranks. A rank that has not begun its step, or has finished it, is not watched.
  void begin_wait() { turn(running, waiting); }
  void end_wait() { turn(waiting, running); }
  void beat() { beats.store(beats.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

 private:
  void turn(State from, State to) {
    if (state.load(std::memory_order_relaxed) == from) enter(to);
  }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);  // otherwise it would not work between processes

struct WatchedRank {
  uint32_t rank = 0;
  Heartbeat* heart = nullptr;
};

}  // namespace sg
