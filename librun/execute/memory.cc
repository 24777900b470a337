#include "librun/execute/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "libgraph/base/human.h"
#include "librun/sanitize.h"

namespace sg {
namespace {

// A line of /proc/meminfo in bytes; -1 = absent.
int64_t meminfo(std::string_view key) {
  std::ifstream in("/proc/meminfo");
  std::string word;
  for (int64_t kilobytes = 0; in >> word; in.ignore(64, '\n'))
    if (word == key && in >> kilobytes) return kilobytes * 1024;
  return -1;
}

// Even an empty host arena has an address: kernels do pointer arithmetic on empty tensors, and null must not be
// advanced.
size_t mapped_bytes(int64_t bytes) { return static_cast<size_t>(std::max<int64_t>(bytes, 1)); }

}  // namespace

int64_t available_memory() { return meminfo("MemAvailable:"); }

Status require_memory(int64_t bytes) {
  constexpr int64_t kSmall = int64_t{1} << 28;
  if (bytes < kSmall) return ok_status();
  const int64_t available = available_memory(), swap = meminfo("SwapFree:");
  if (available < 0 || bytes <= available + std::max<int64_t>(swap, 0)) return ok_status();
  return Error{ErrorKind::missing,
               human_bytes(static_cast<double>(bytes)) + " are needed, and the machine has " +
                   human_bytes(static_cast<double>(available)) + " left",
               {},
               "sg-run --plan says what needs it"};
}

void MemoryRelease::operator()(std::byte* memory) const {
  if (source) source->give(memory);
  else std::free(memory);
}

Result<Arena> Arena::reserve(int64_t bytes, MemorySource* source) {
  Arena arena;
  if (bytes == 0 && source) return arena;
  arena.source_ = source;
  if (source) {
    arena.data_ = source->take(bytes);
    arena.bytes_ = bytes;
    if (arena.data_) return arena;
    return Error{ErrorKind::missing,
                 human_bytes(static_cast<double>(bytes)) + " are needed, and " + source->title() + " has " +
                     human_bytes(static_cast<double>(source->free_bytes())) + " left",
                 {},
                 "a smaller batch, or a pass that lowers the peak (see sg-run --plan)"};
  }
  SG_TRY(require_memory(bytes));
  void* memory =
      mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return Error{ErrorKind::missing,
                 "cannot reserve " + std::to_string(bytes) + " bytes: " + std::strerror(errno),
                 {},
                 "a smaller batch, or a pass that lowers the peak (see sg-run --plan)"};
  madvise(memory, mapped_bytes(bytes), MADV_HUGEPAGE);  // optional: without it everything works, only slower
  arena.data_ = static_cast<std::byte*>(memory);
  arena.bytes_ = bytes;
  return arena;
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)), source_(other.source_) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(source_, other.source_);
  return *this;
}

Arena::~Arena() {
  if (data_ && source_) source_->give(data_);
  else if (data_) munmap(data_, mapped_bytes(bytes_));
}

BlockPool::~BlockPool() {
  drop_free();
  for (auto& [block, size] : taken_) free(block, size);
}

// Under ASan, accesses outside requested blocks or to released ones are detected. With a source, a device may still use
// a block: the source is asked for each block anew, and waits before it takes one back.
void BlockPool::poison(std::byte* block, int64_t size) const {
  if (!source_) sg::poison(block, static_cast<size_t>(size));
}

void BlockPool::unpoison(std::byte* block, int64_t size) const {
  if (!source_) sg::unpoison(block, static_cast<size_t>(size));
}

void BlockPool::free(std::byte* block, int64_t size) {
  unpoison(block, size);
  MemoryRelease{source_}(block);
}

void BlockPool::drop_free() {
  for (auto& [size, block] : free_) {
    free(block, size);
    held_ -= size;
  }
  free_.clear();
}

std::byte* BlockPool::take(int64_t bytes) {
  if (bytes < 0 || bytes > INT64_MAX - 64) return nullptr;
  int64_t asked = bytes;
  if (!is_exact()) bytes = std::max<int64_t>((bytes + 63) / 64 * 64, 64);
  auto fit = free_.lower_bound(bytes);
  int64_t size = bytes;
  std::byte* block = nullptr;
  if (fit != free_.end() && fit->first <= bytes + bytes / 4 + 4096) {
    size = fit->first;
    block = fit->second;
    free_.erase(fit);
  } else {
    if (limit_ && held_ > *limit_ - bytes) drop_free();
    if (limit_ && held_ > *limit_ - bytes) return nullptr;
    block =
        source_ ? source_->take(bytes) : static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(bytes)));
    if (!block) return nullptr;
    held_ += bytes;
  }
  unpoison(block, asked);
  poison(block + asked, size - asked);
  taken_.emplace(block, size);
  in_use_ += size;
  most_ = std::max(most_, in_use_);
  return block;
}

void BlockPool::give(std::byte* block) {
  auto it = taken_.find(block);
  in_use_ -= it->second;
  poison(it->first, it->second);
  free_.emplace(it->second, block);
  taken_.erase(it);
  if (is_exact()) drop_free();
}

bool BlockPool::is_exact() const { return kSeesAddresses && source_; }

}  // namespace sg
