// ThreadTeam: the threads of one rank. The caller is the first of them.
//
// parallel_for splits [0, count) into pieces of at least `grain` and distributes them. Which thread runs a piece, and
// where pieces end, is unspecified, so a kernel's bits must not depend on it: each index writes its own part of the
// result. A long reduction is cut into blocks by size alone, the index being that of the block, and the blocks are
// added up in order.
//
// Each thread begins with its own part, the same in every loop of equal length: its cache holds what it wrote in the
// previous loop, and between cores without a shared cache, fetching would cost more than it gains. A thread that
// finishes its part steals from the ends of the others'.
//
// Late threads are not waited for: when the caller finds no piece left, it waits only for threads that are running one.
// On an overloaded machine a step is then about as fast as with one thread, not slower.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace sg {

inline constexpr int64_t kPieceElements = 1 << 14;  // elements per task: enough to justify distributing it

class ThreadTeam {
 public:
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(begin, end) for every piece; returns when all are done. Must not be called from within fn.
  template <class Fn>
  void parallel_for(int64_t count, int64_t grain, const Fn& fn) {
    if (count <= 0) return;
    if (workers_.empty() || count <= grain) return fn(int64_t{0}, count);
    run(
        count, grain, [](const void* f, int64_t begin, int64_t end) { (*static_cast<const Fn*>(f))(begin, end); }, &fn);
  }

  // The same with the index of the thread that runs the piece, below size(): for per-thread scratch memory.
  template <class Fn>
  void parallel_for_indexed(int64_t count, int64_t grain, const Fn& fn) {
    parallel_for(count, grain, [&](int64_t begin, int64_t end) { fn(current_thread(), begin, end); });
  }

  // Index of the running thread in its team: 0 for the caller and for threads outside any team.
  static int current_thread();

 private:
  using Piece = void (*)(const void* fn, int64_t begin, int64_t end);
  void run(int64_t count, int64_t grain, Piece piece, const void* fn);
  void work(int index);
  bool enter();
  void share_out(int64_t pieces);
  void take_pieces(int thread);

  // The remaining pieces [begin, end) of a thread's part, with begin in the upper half. Its thread takes the first,
  // others the last.
  struct alignas(64) Part {
    std::atomic<uint64_t> left{0};
    int64_t take_first();  // -1 if none is left
    int64_t take_last();
  };

  std::vector<std::thread> workers_;
  // The current job, published by incrementing `generation_`.
  Piece piece_ = nullptr;
  const void* fn_ = nullptr;
  int64_t count_ = 0, grain_ = 1;
  std::vector<Part> parts_;  // of the caller and the workers
  // kOpen while pieces are handed out, plus the number of workers inside. The fields above are only written when it is
  // 0.
  static constexpr uint32_t kOpen = 1u << 31;
  std::atomic<uint32_t> state_{0};
  std::atomic<uint32_t> generation_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace sg
