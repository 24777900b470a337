// Memory of a run: one arena for planned tensors, a pool for data-dependent sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "libgraph/result.h"

namespace sg {

// `missing` when the machine has not so much memory left, as the kernel counts it. A mapping alone would succeed, and
// the run would be ended by the system later, with nothing said. Unknown counts as enough.
Status require_memory(int64_t bytes);
// What it has left, without swap; -1 = unknown.
int64_t available_memory();

// Memory that is not the process's own: a device's. `take` gives null when there is none left.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual std::byte* take(int64_t bytes) = 0;
  virtual void give(std::byte* memory) = 0;
  virtual int64_t free_bytes() const = 0;
  virtual std::string title() const = 0;  // "the device": for errors
};

// Gives memory back to where it is from: null = the host, by std::free.
struct MemoryRelease {
  MemorySource* source = nullptr;
  void operator()(std::byte* memory) const;
};

// Zeroed pages of the system's, touched only where they are used. Page-aligned; empty when `bytes` is 0. With a source:
// memory of that, not zeroed.
class Arena {
 public:
  Arena() = default;
  static Result<Arena> reserve(int64_t bytes, MemorySource* source = nullptr);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  MemorySource* source_ = nullptr;
};

// Blocks that come and go while the step runs, kept for the next request of about their size. With a limit, what would
// pass it fails.
class BlockPool {
 public:
  explicit BlockPool(std::optional<int64_t> limit = {}) : limit_(limit) {}
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;

  void use_source(MemorySource* source) { source_ = source; }  // REQUIRES: nothing is taken
  void set_limit(std::optional<int64_t> bytes) { limit_ = bytes; }
  // 64-byte aligned (a source: as it gives it); null when there is no memory, or it would pass the limit.
  std::byte* take(int64_t bytes);
  void give(std::byte* block);  // what `take` returned
  int64_t in_use() const { return in_use_; }
  int64_t most_in_use() const { return most_; }

 private:
  bool is_exact() const;  // blocks of the size that was asked for, and never for another request
  void drop_free();
  void free(std::byte* block, int64_t size);
  void poison(std::byte* block, int64_t size) const;
  void unpoison(std::byte* block, int64_t size) const;

  MemorySource* source_ = nullptr;
  std::multimap<int64_t, std::byte*> free_;  // by size
  std::map<std::byte*, int64_t> taken_;
  std::optional<int64_t> limit_;
  int64_t in_use_ = 0, most_ = 0, held_ = 0;  // held: in use and free
};

}  // namespace sg
