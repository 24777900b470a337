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
#include <utility>
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

  // Connections, as NCCL makes them: of a kind of collective by the first one, unless the communicator came with them
  // (NCCL_RUNTIME_CONNECT=0), and of two ranks by the first send or receive. The request is not issued before the ranks
  // on the other side have made theirs.
  static bool connects_late() {
    const char* said = std::getenv("NCCL_RUNTIME_CONNECT");
    return !said || std::strcmp(said, "0") != 0;
  }
  bool is_kind_known[stub::kKinds] = {};
  int connecting_kind = -1;                   // of what is being issued
  std::vector<stub::Transfer> connecting_to;  // sends and receives of what is being issued
  void begin_to_connect(int kind, const std::vector<stub::Transfer>& transfers) {
    connecting_kind = -1;
    connecting_to.clear();
    if (kind < 0) {
      connecting_to = transfers;
      for (const stub::Transfer& t : transfers)
        (t.sends ? region->connections.sends[rank][t.peer] : region->connections.receives[t.peer][rank]) = 1;
    } else if (connects_late()) {
      connecting_kind = kind;
      if (!std::exchange(is_kind_known[kind], true)) ++region->connections.of_kind[kind];
    }
  }
  bool is_connected() const {
    const stub::Connections& all = region->connections;
    if (connecting_kind >= 0) return all.of_kind[connecting_kind] == static_cast<uint32_t>(ranks);
    return std::all_of(connecting_to.begin(), connecting_to.end(), [&](const stub::Transfer& t) {
      return (t.sends ? all.receives[rank][t.peer] : all.sends[t.peer][rank]) == 1;
    });
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
