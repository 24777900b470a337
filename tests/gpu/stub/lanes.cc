#include "tests/gpu/stub/lanes.h"

#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#if !defined(__x86_64__)
#error "lanes change their stacks by code for x86-64"
#endif

// Saves the registers that a call must preserve, stores the stack pointer in *from, and continues on the stack `to`.
extern "C" void sg_change_stack(void** from, void* to);
asm(R"(
  .text
  .hidden sg_change_stack
  .globl sg_change_stack
  .type sg_change_stack, @function
sg_change_stack:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
  .size sg_change_stack, . - sg_change_stack
)");

namespace lanes {
namespace {

constexpr unsigned kCount = 256, kWarp = 32, kWarpCount = kCount / kWarp;
constexpr size_t kStackBytes = size_t{64} << 10;
constexpr size_t kKept = 6;  // registers saved by a change of stacks

enum class State : uint8_t { runs, meets_warp, meets_block, ended };

// A copy to shared memory that has not been waited for: `there` bytes, then zeros up to `bytes`.
struct Copy {
  void* to;
  const void* from;
  size_t bytes, there;

  void make() const {
    std::memset(to, 0, bytes);
    std::memcpy(to, from, there);
  }
};

struct Lane {
  void* stack = nullptr;
  State state = State::ended;
  std::vector<Copy> copies = {};
};

// What the lanes of a warp exchange: the values of this exchange and of the last one, as a lane may be one ahead.
template <class T>
struct Exchange {
  T held[2][kWarp];
  std::array<uint8_t, kWarp> turn{};
};

struct Fragments {
  uint32_t a[4], b[2];
};

class Team {
 public:
  Team() {
    stacks_ = static_cast<std::byte*>(mmap(nullptr, kCount * kStackBytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (stacks_ == MAP_FAILED) std::perror("stacks of lanes"), std::abort();
    const char* order = std::getenv("SG_STUB_LANES");
    is_down_ = order && std::strcmp(order, "down") == 0;
  }
  ~Team() { munmap(stacks_, kCount * kStackBytes); }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  void run(const char* kernel, const std::function<void()>& body) {
    kernel_ = kernel, body_ = &body;
    for (unsigned lane = 0; lane < kCount; ++lane) begin(lane);
    for (;;) {
      for (unsigned i = 0; i < kWarpCount; ++i) run_warp(is_down_ ? kWarpCount - 1 - i : i);
      const unsigned ended = count(0, kCount, State::ended), waiting = count(0, kCount, State::meets_block);
      if (ended == kCount) return;
      if (waiting != kCount) stuck("of a block", ended);
      release(0, kCount);
    }
  }

  // --- called by the running lane ---

  void meet(State where) {
    lanes_[now_].state = where;
    sg_change_stack(&lanes_[now_].stack, scheduler_);
  }

  template <class T>
  const T* exchange(Exchange<T> (&all)[kWarpCount], const T& mine) {
    Exchange<T>& of_warp = all[now_ / kWarp];
    const unsigned lane = now_ % kWarp, turn = of_warp.turn[lane] ^= 1;
    of_warp.held[turn][lane] = mine;
    meet(State::meets_warp);
    return of_warp.held[turn];
  }
  unsigned word_of(unsigned mine, unsigned lane) { return exchange(words_, mine)[lane]; }
  const Fragments* fragments(const Fragments& mine) { return exchange(fragments_, mine); }
  const uint16_t* const* rows(const uint16_t* mine) { return exchange(rows_, mine); }
  void copy(const Copy& copy) {
    if (is_down_) copy.make();
    else lanes_[now_].copies.push_back(copy);
  }
  void finish_copies() {
    for (const Copy& copy : lanes_[now_].copies) copy.make();
    lanes_[now_].copies.clear();
  }

 private:
  static void enter();

  void begin(unsigned lane) {
    auto* top = reinterpret_cast<void**>(stacks_ + (lane + 1) * kStackBytes) - 2;  // as after a call
    *top = reinterpret_cast<void*>(&Team::enter);
    for (size_t i = 1; i <= kKept; ++i) top[-static_cast<ptrdiff_t>(i)] = nullptr;
    lanes_[lane] = {top - kKept, State::runs, {}};
  }

  // Until all its lanes have ended or wait for the block.
  void run_warp(unsigned warp) {
    const unsigned first = warp * kWarp;
    for (;;) {
      for (unsigned i = 0; i < kWarp; ++i) {
        const unsigned lane = first + (is_down_ ? kWarp - 1 - i : i);
        if (lanes_[lane].state != State::runs) continue;
        now_ = lane;
        threadIdx.x = lane;
        sg_change_stack(&scheduler_, lanes_[lane].stack);
      }
      const unsigned waiting = count(first, kWarp, State::meets_warp);
      if (waiting == 0) return;
      if (waiting != kWarp) stuck("of a warp", count(first, kWarp, State::ended));
      release(first, kWarp);
    }
  }

  unsigned count(unsigned first, unsigned n, State state) const {
    unsigned found = 0;
    for (unsigned i = first; i < first + n; ++i) found += lanes_[i].state == state;
    return found;
  }
  void release(unsigned first, unsigned n) {
    for (unsigned i = first; i < first + n; ++i) lanes_[i].state = State::runs;
  }
  [[noreturn]] void stuck(const char* where, unsigned ended) const {
    std::fprintf(stderr, "kernel %s: lanes %s wait for others that do not come; %u have ended\n", kernel_, where,
                 ended);
    std::abort();
  }

  std::byte* stacks_;
  bool is_down_ = false;
  const char* kernel_ = "";
  const std::function<void()>* body_ = nullptr;
  void* scheduler_ = nullptr;
  unsigned now_ = 0;
  Lane lanes_[kCount];
  Exchange<unsigned> words_[kWarpCount];
  Exchange<Fragments> fragments_[kWarpCount];
  Exchange<const uint16_t*> rows_[kWarpCount];
};

Team& team() {
  static thread_local Team one;
  return one;
}

void Team::enter() {
  (*team().body_)();
  team().meet(State::ended);
}

float brain(uint32_t pair, unsigned half) {
  return __builtin_bit_cast(float, half == 0 ? pair << 16 : pair & 0xFFFF0000u);
}

}  // namespace

void run_block(int64_t index, int64_t blocks, const char* kernel, const std::function<void()>& lane) {
  blockIdx.x = static_cast<unsigned>(index);
  gridDim.x = static_cast<unsigned>(blocks);
  team().run(kernel, lane);
}

void meet_block() { team().meet(State::meets_block); }
unsigned from_lane(unsigned mine, unsigned lane) { return team().word_of(mine, lane); }

// Register layout of m16n8k16 in PTX: the element of `a` in row r and column k is held by lane 4 (r % 8) + k % 8 / 2,
// in register (r >= 8) + 2 (k >= 8); that of `b` in row k and column n by lane 4 n + k % 8 / 2, in register k >= 8; of
// the two in a register, the one at even k is the lower. A lane's c are in rows lane / 4 and 8 more, columns from 2
// (lane % 4).
void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const unsigned lane = threadIdx.x % kWarp;
  const Fragments* all = team().fragments({{a[0], a[1], a[2], a[3]}, {b0, b1}});
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4 + (i >= 2 ? 8 : 0), column = 2 * (lane % 4) + i % 2;
    float sum = c[i];
    for (unsigned k = 0; k < 16; ++k)
      sum += brain(all[4 * (row % 8) + k % 8 / 2].a[(row >= 8) + 2 * (k >= 8)], k % 2) *
             brain(all[4 * column + k % 8 / 2].b[k >= 8], k % 2);
    c[i] = sum;
  }
}

// What ldmatrix reads in PTX: row r of matrix j begins at the address of lane 8 j + r. A lane gets, of each matrix, the
// elements of row lane / 4 in columns from 2 (lane % 4); of a transposed one, those of column lane / 4 in rows from 2
// (lane % 4).
void load_matrices(const uint16_t* row, bool turned, uint32_t (&out)[4]) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
    std::fputs("a row of ldmatrix is not aligned\n", stderr), std::abort();
  const unsigned lane = threadIdx.x % kWarp, line = lane / 4, two = 2 * (lane % 4);
  const uint16_t* const* rows = team().rows(row);
  for (unsigned j = 0; j < 4; ++j) {
    const uint16_t *low = rows[8 * j + (turned ? two : line)], *high = rows[8 * j + (turned ? two + 1 : line)];
    out[j] = low[turned ? line : two] | static_cast<uint32_t>(high[turned ? line : two + 1]) << 16;
  }
}

void copy_async(void* to, const void* from, int bytes, int there) {
  const auto size = static_cast<uintptr_t>(bytes);
  if (reinterpret_cast<uintptr_t>(to) % size != 0 || reinterpret_cast<uintptr_t>(from) % size != 0 || there > bytes)
    std::fputs("a copy to shared memory is not aligned, or longer than it is\n", stderr), std::abort();
  team().copy({to, from, size, static_cast<size_t>(there)});
}
void wait_for_copies() { team().finish_copies(); }

}  // namespace lanes
