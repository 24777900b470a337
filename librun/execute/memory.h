// Memory of a run: one arena for planned tensors, a pool for data-dependent ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "libgraph/base/result.h"

namespace sg {

// `missing` if the machine has less memory available, according to the kernel. A mapping alone would succeed, and the
// system would later kill the process without a message. Unknown counts as enough.
Status require_memory(int64_t bytes);
// Available memory, excluding swap; -1 = unknown.
int64_t available_memory();

// Memory that does not belong to the process: a device's. `take` returns null if none is left.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual std::byte* take(int64_t bytes) = 0;
  virtual void give(std::byte* memory) = 0;
  virtual int64_t free_bytes() const = 0;
  virtual std::string title() const = 0;  // "the device": for errors
};

// Returns memory to its source; null = the host, by std::free.
struct MemoryRelease {
  MemorySource* source = nullptr;
  void operator()(std::byte* memory) const;
};

// Zeroed pages from the system, committed on first use. Page-aligned; empty if `bytes` is 0. With a source: its memory,
// not zeroed.
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

// Blocks allocated and released during a step, kept for later requests of about their size. Requests beyond the limit,
// if any, fail.
class BlockPool {
 public:
  explicit BlockPool(std::optional<int64_t> limit = {}) : limit_(limit) {}
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;

  void use_source(MemorySource* source) { source_ = source; }  // REQUIRES: no block is taken
  void set_limit(std::optional<int64_t> bytes) { limit_ = bytes; }
  // 64-byte aligned (with a source: as it aligns); null if there is no memory, or the limit would be exceeded.
  std::byte* take(int64_t bytes);
  void give(std::byte* block);  // a block from `take`
  // What a request may still have; none = there is no limit.
  std::optional<int64_t> left() const { return limit_ ? std::optional(*limit_ - in_use_) : std::nullopt; }
  int64_t in_use() const { return in_use_; }
  int64_t most_in_use() const { return most_; }

 private:
  bool is_exact() const;  // blocks have exactly the requested size and are not reused
  void drop_free();
  void free(std::byte* block, int64_t size);
  void poison(std::byte* block, int64_t size) const;
  void unpoison(std::byte* block, int64_t size) const;

  MemorySource* source_ = nullptr;
  std::multimap<int64_t, std::byte*> free_;  // by size
  std::map<std::byte*, int64_t> taken_;
  std::optional<int64_t> limit_;
  int64_t in_use_ = 0, most_ = 0, held_ = 0;  // held: in use or free
};

}  // namespace sg
