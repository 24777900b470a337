#include "librun/thread_team.h"

#include <algorithm>
#include <system_error>

namespace sg {
namespace {

thread_local int g_thread_index = 0;

// How long a thread spins before it sleeps: about the duration of a small kernel, so that a step of many small kernels
// pays no wake-ups, and idle ranks free their cores.
constexpr int kSpins = 4000;

constexpr int64_t kMostPieces = int64_t{1} << 30;  // per loop: piece numbers are stored in half a word

template <class Changed>
void spin_until(const Changed& changed) {
  for (int i = 0; i < kSpins && !changed(); ++i) __builtin_ia32_pause();
}

}  // namespace

ThreadTeam::ThreadTeam(int threads) : parts_(static_cast<size_t>(std::max(threads, 1))) {
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error&) {
    // the system has no more threads: the existing ones take the others' pieces, too
  }
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
  grain_ = std::max({int64_t{1}, grain, count / kMostPieces + 1});
  share_out((count - 1) / grain_ + 1);
  state_.store(kOpen, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  take_pieces(0);
  state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  spin_until([&] { return state_.load(std::memory_order_acquire) == 0; });
  for (uint32_t inside; (inside = state_.load(std::memory_order_acquire)) != 0;) state_.wait(inside);
}

// False: all pieces of the current job are taken.
bool ThreadTeam::enter() {
  uint32_t state = state_.load(std::memory_order_relaxed);
  while (state & kOpen)
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire, std::memory_order_relaxed))
      return true;
  return false;
}

int64_t ThreadTeam::Part::take_first() {
  uint64_t now = left.load(std::memory_order_relaxed);
  while (now >> 32 < static_cast<uint32_t>(now))
    if (left.compare_exchange_weak(now, now + (uint64_t{1} << 32), std::memory_order_relaxed))
      return static_cast<int64_t>(now >> 32);
  return -1;
}

int64_t ThreadTeam::Part::take_last() {
  uint64_t now = left.load(std::memory_order_relaxed);
  while (now >> 32 < static_cast<uint32_t>(now))
    if (left.compare_exchange_weak(now, now - 1, std::memory_order_relaxed))
      return static_cast<int64_t>(static_cast<uint32_t>(now)) - 1;
  return -1;
}

void ThreadTeam::share_out(int64_t pieces) {
  const auto parts = static_cast<int64_t>(parts_.size());
  for (int64_t i = 0; i < parts; ++i) {
    const auto begin = static_cast<uint64_t>(pieces * i / parts), end = static_cast<uint64_t>(pieces * (i + 1) / parts);
    parts_[static_cast<size_t>(i)].left.store(begin << 32 | end, std::memory_order_relaxed);
  }
}

void ThreadTeam::take_pieces(int thread) {
  auto run_piece = [&](int64_t piece) { piece_(fn_, piece * grain_, std::min((piece + 1) * grain_, count_)); };
  const size_t own = static_cast<size_t>(thread), parts = parts_.size();
  for (int64_t piece; (piece = parts_[own].take_first()) >= 0;) run_piece(piece);
  for (size_t i = 1; i < parts; ++i)
    for (int64_t piece; (piece = parts_[(own + i) % parts].take_last()) >= 0;) run_piece(piece);
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
    take_pieces(index);
    if (state_.fetch_sub(1, std::memory_order_acq_rel) == 1) state_.notify_one();  // the last one; no piece is left
  }
}

}  // namespace sg
