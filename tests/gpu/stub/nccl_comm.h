// A communicator of the stand-in of NCCL, as one rank has it.
#pragma once

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/stub/nccl_mail.h"

namespace stub {

inline void rest_a_moment() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

[[noreturn]] inline void forbidden(const char* what) {
  std::fprintf(stderr, "fake NCCL: %s\n", what);
  std::_Exit(99);
}

// Whose turn it is, of what communicators that share resources have launched.
struct Turns {
  std::atomic<uint64_t> given{0}, now{0};
};

}  // namespace stub

struct ncclComm {
  std::string name;  // of the region
  stub::Region* region = nullptr;
  int rank = 0, ranks = 1;
  std::atomic<bool> aborted{false}, failed{false}, breaks{false};
  std::atomic<int> calls{0};
  std::atomic<int> under_way{0};
  std::shared_ptr<stub::Turns> turns = std::make_shared<stub::Turns>();

  // What is split off, and from what.
  ncclComm* parent = nullptr;
  int children = 0, splits = 0;
  bool is_splitting = false, shares = false;
  ncclComm** split_off = nullptr;

  bool counted(const char* what) {  // whether this is the collective that the rule is for
    static const char* rule = std::getenv("SG_FAKE_NCCL");
    const int number = ++calls;
    int at_rank = 0, at_call = 0;
    const size_t length = std::strlen(what);
    if (!rule || std::strncmp(rule, what, length) != 0 || std::sscanf(rule + length, ":%d:%d", &at_rank, &at_call) != 2)
      return false;
    return at_rank == rank && at_call == number;
  }

  std::function<void()> being_issued;
  bool is_stuck = false;
  bool is_busy() const { return is_splitting || being_issued; }

  bool refuses() {
    if (is_busy()) return true;
    return std::getenv("SG_FAKE_NCCL") && std::strncmp(std::getenv("SG_FAKE_NCCL"), "refuse", 6) == 0 &&
           counted("refuse");
  }

  // Moves a message as far as it goes now.
  void move(stub::Transfer& t) const {
    stub::Mail& mail = t.sends ? region->mail[rank][t.peer] : region->mail[t.peer][rank];
    if (mail.full.load(std::memory_order_acquire) != (t.sends ? 0u : 1u)) return;
    if (t.sends) {
      const size_t n = std::min(stub::kMailBytes, t.bytes - t.done);
      std::memcpy(mail.data, t.data + t.done, n);
      mail.bytes = static_cast<uint32_t>(n);
      t.done += n;
      mail.full.store(1, std::memory_order_release);
    } else {
      const size_t n = mail.bytes;
      if (t.done + n > t.bytes) stub::forbidden("a rank gets more from another than it asked for");
      std::memcpy(t.data + t.done, mail.data, n);
      t.done += n;
      mail.full.store(0, std::memory_order_release);
    }
  }
  void run(std::vector<stub::Transfer> list) {
    while (!aborted) {
      bool open = false;
      for (stub::Transfer& t : list) {
        if (t.done < t.bytes) move(t);
        open |= t.done < t.bytes;
      }
      if (!open) return;
      stub::rest_a_moment();
    }
  }
};
