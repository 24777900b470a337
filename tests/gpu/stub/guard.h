// Memory of the stand-in's device that the host cannot touch (SG_STUB_GUARD=1): a read or a write of it outside of what
// a stream does ends the process, as on a machine with a device. What is asked of a stream is then done at once, by the
// thread that asks.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <map>
#include <mutex>

class Guard {
 public:
  static Guard* find() {  // null: not asked for
    static Guard guard;
    static const bool is_on = std::getenv("SG_STUB_GUARD") != nullptr;
    return is_on ? &guard : nullptr;
  }

  void* take(size_t bytes) {
    std::lock_guard lock(mutex_);
    const size_t pages = (bytes + kPage - 1) / kPage * kPage;
    void* block = mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return nullptr;
    blocks_[block] = pages;
    return block;
  }
  void close(void* block) {  // after it was filled with what a device hands out
    std::lock_guard lock(mutex_);
    if (users_ == 0) mprotect(block, blocks_[block], PROT_NONE);
  }
  bool give(void* block) {  // false: not from here
    std::lock_guard lock(mutex_);
    auto it = blocks_.find(block);
    if (it == blocks_.end()) return false;
    munmap(block, it->second);
    blocks_.erase(it);
    return true;
  }

  // While a job of a stream runs, of whichever.
  template <class Job>
  void run(const Job& job) {
    change(1);
    job();
    change(-1);
  }

 private:
  static constexpr size_t kPage = 4096;

  void change(int by) {
    std::lock_guard lock(mutex_);
    const bool was_open = users_ > 0;
    users_ += by;
    if (was_open == (users_ > 0)) return;
    for (auto& [block, bytes] : blocks_) mprotect(block, bytes, users_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
  }

  std::mutex mutex_;
  std::map<void*, size_t> blocks_;
  int users_ = 0;
};
