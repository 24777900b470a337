#include "librun/thread_team.h"

#include <algorithm>

namespace sg {
namespace {

thread_local int g_thread_index = 0;

// How long a thread looks before it sleeps: about as long as a small kernel takes, so that a step of many small
// kernels pays no wake-up, and idle ranks leave the cores alone.
constexpr int kSpins = 4000;

template <class Changed>
void spin_until(const Changed& changed) {
  for (int i = 0; i < kSpins && !changed(); ++i) __builtin_ia32_pause();
}

}  // namespace

ThreadTeam::ThreadTeam(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadTeam::~ThreadTeam() {
  stop_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& t : workers_) t.join();
}

int ThreadTeam::current_thread() { return g_thread_index; }

void ThreadTeam::run(int64_t count, int64_t grain, Piece piece, const void* fn) {
  piece_ = piece;
  fn_ = fn;
  count_ = count;
  grain_ = std::max<int64_t>(grain, 1);
  next_.store(0, std::memory_order_relaxed);
  state_.store(kOpen, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  take_pieces();
  state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  spin_until([&] { return state_.load(std::memory_order_acquire) == 0; });
  for (uint32_t inside; (inside = state_.load(std::memory_order_acquire)) != 0;) state_.wait(inside);
}

// False: the pieces of the job at hand are all taken.
bool ThreadTeam::enter() {
  uint32_t state = state_.load(std::memory_order_relaxed);
  while (state & kOpen)
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire, std::memory_order_relaxed))
      return true;
  return false;
}

void ThreadTeam::take_pieces() {
  for (;;) {
    int64_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (begin >= count_) return;
    piece_(fn_, begin, std::min(begin + grain_, count_));
  }
}

void ThreadTeam::work(int index) {
  g_thread_index = index;
  uint32_t seen = 0;
  for (;;) {
    spin_until([&] { return generation_.load(std::memory_order_acquire) != seen; });
    generation_.wait(seen, std::memory_order_acquire);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_) return;
    if (!enter()) continue;
    take_pieces();
    if (state_.fetch_sub(1, std::memory_order_acq_rel) == 1) state_.notify_one();  // the last, and all are taken
  }
}

}  // namespace sg
