#include "libgraph/base/mapped_file.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "libgraph/base/human.h"

namespace sg {
namespace {

// Read by signal handlers, so without locks or growth.
struct Entry {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0}, end{0};
  std::string name;  // unchanged while `end` is not 0
};
constexpr int kEntries = 1024;
Entry entries[kEntries];

int enter(const void* at, size_t size, std::string name) {
  for (int i = 0; i < kEntries; ++i) {
    Entry& e = entries[i];
    if (e.taken.exchange(true)) continue;
    e.name = std::move(name);
    e.begin = reinterpret_cast<uintptr_t>(at);
    e.end = reinterpret_cast<uintptr_t>(at) + size;
    return i;
  }
  return -1;
}

void leave(int i) {
  if (i < 0) return;
  entries[i].end = 0;
  entries[i].taken = false;
}

}  // namespace

std::optional<MappedFile> MappedFile::map(int descriptor, size_t size, std::string_view name, Access access) {
  MappedFile out;
  if (size == 0) return out;  // no file of no bytes can be mapped
  const int protection = access == Access::copy_on_write ? PROT_READ | PROT_WRITE : PROT_READ;
  void* at = ::mmap(nullptr, size, protection, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
  if (at == MAP_FAILED) return std::nullopt;
  out.at_ = at, out.size_ = size;
  out.entry_ = enter(at, size, one_line(name));
  return out;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : at_(std::exchange(other.at_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      entry_(std::exchange(other.entry_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(at_, other.at_);
  std::swap(size_, other.size_);
  std::swap(entry_, other.entry_);
  return *this;
}

MappedFile::~MappedFile() {
  leave(entry_);
  if (at_) ::munmap(at_, size_);
}

const char* mapped_file_at(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Entry& e : entries)
    if (at < e.end && at >= e.begin) return e.name.c_str();
  return nullptr;
}

}  // namespace sg
