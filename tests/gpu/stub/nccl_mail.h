// The memory that the ranks of a communicator of the stand-in of NCCL share: a mailbox a pair of ranks.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace stub {

inline constexpr int kMostRanks = 16;
inline constexpr int kMostSplits = 16;
inline constexpr size_t kMailBytes = 32 << 10;

struct Mail {  // one message at a time
  std::atomic<uint32_t> full;
  uint32_t bytes;
  unsigned char data[kMailBytes];
};
// One split of a communicator: what each rank says, and whether the memory of what it leads is there.
struct Split {
  std::atomic<uint32_t> here;
  std::atomic<int> color[kMostRanks], key[kMostRanks];
  std::atomic<uint32_t> made[kMostRanks];
};
// How many ranks have made their first collective of each kind; which have said that they send to which, and receive.
inline constexpr int kKinds = 4;
struct Connections {
  std::atomic<uint32_t> of_kind[kKinds];
  std::atomic<uint32_t> sends[kMostRanks][kMostRanks], receives[kMostRanks][kMostRanks];  // [from][to]
};
struct Region {
  std::atomic<uint32_t> here;  // ranks that have come
  Connections connections;
  Mail mail[kMostRanks][kMostRanks];  // [from][to]
  Split splits[kMostSplits];
};

struct Transfer {
  bool sends = false;
  int peer = 0;
  unsigned char* data = nullptr;
  size_t bytes = 0, done = 0;
};

// Zeros, under a name that nobody has: what a process that died has left there goes.
inline bool make_region(const char* name) {
  shm_unlink(name);
  const int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (file < 0) return false;
  const bool fits = ftruncate(file, sizeof(Region)) == 0;
  close(file);
  return fits;
}

// Null: there is none.
inline Region* open_region(const char* name) {
  const int file = shm_open(name, O_RDWR, 0600);
  if (file < 0) return nullptr;
  void* memory = mmap(nullptr, sizeof(Region), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<Region*>(memory);
}

}  // namespace stub
