// libnccl.so.2 for tests: NCCL's calls over shared memory, between threads and between processes.
//
// Everything is made of messages through one mailbox a pair of ranks, moved by the stream's thread when the stream
// comes to them. Sums begin with the rank's own input, so their order is not that of the ranks: as little to be relied
// on as NCCL's.
//   SG_FAKE_NCCL=die:R:N     rank R ends its process at its N-th collective
//   SG_FAKE_NCCL=hang:R:N    rank R never starts its N-th collective
//   SG_FAKE_NCCL=error:R:N   rank R's communicator is in error from its N-th collective on
//   SG_FAKE_NCCL=refuse:R:N  rank R's N-th collective returns an error at once
//   SG_FAKE_NCCL=init:R:1    rank R's communicator does not come to be
//   SG_FAKE_NCCL=absent:R:1  rank R never comes to the others' communicator
//   SG_FAKE_NCCL=id:0:1      there is no unique id
#include <cuda.h>
#include <nccl.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

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

#define SG_HOST_KERNELS
#include "librun/cuda/kernels/view.h"

namespace {

constexpr int kMostRanks = 16;
constexpr size_t kMailBytes = 32 << 10;

struct Mail {  // one message at a time
  std::atomic<uint32_t> full;
  uint32_t bytes;
  unsigned char data[kMailBytes];
};
struct Region {
  std::atomic<uint32_t> here;  // ranks that have come
  std::atomic<uint32_t> gone;
  Mail mail[kMostRanks][kMostRanks];  // [from][to]
};

struct Transfer {
  bool sends = false;
  int peer = 0;
  unsigned char* data = nullptr;
  size_t bytes = 0, done = 0;
};

void rest_a_moment() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

}  // namespace

struct ncclComm {
  std::string name;  // of the region
  Region* region = nullptr;
  int rank = 0, ranks = 1;
  std::atomic<bool> aborted{false}, failed{false};
  std::atomic<int> calls{0};
  std::vector<double> factors;  // of premul sums, by op number

  bool counted(const char* what) {  // whether this is the collective that the rule is for
    static const char* rule = std::getenv("SG_FAKE_NCCL");
    const int number = ++calls;
    int at_rank = 0, at_call = 0;
    const size_t length = std::strlen(what);
    if (!rule || std::strncmp(rule, what, length) != 0 || std::sscanf(rule + length, ":%d:%d", &at_rank, &at_call) != 2)
      return false;
    return at_rank == rank && at_call == number;
  }

  bool refuses() {
    return std::getenv("SG_FAKE_NCCL") && std::strncmp(std::getenv("SG_FAKE_NCCL"), "refuse", 6) == 0 &&
           counted("refuse");
  }

  // Moves a message as far as it goes now.
  void move(Transfer& t) const {
    Mail& mail = t.sends ? region->mail[rank][t.peer] : region->mail[t.peer][rank];
    if (mail.full.load(std::memory_order_acquire) != (t.sends ? 0u : 1u)) return;
    if (t.sends) {
      const size_t n = std::min(kMailBytes, t.bytes - t.done);
      std::memcpy(mail.data, t.data + t.done, n);
      mail.bytes = static_cast<uint32_t>(n);
      t.done += n;
      mail.full.store(1, std::memory_order_release);
    } else {
      const size_t n = mail.bytes;
      if (t.done + n > t.bytes)
        std::fprintf(stderr, "fake NCCL: rank %d gets more from rank %d than it asked for\n", rank, t.peer),
            std::_Exit(99);
      std::memcpy(t.data + t.done, mail.data, n);
      t.done += n;
      mail.full.store(0, std::memory_order_release);
    }
  }
  void run(std::vector<Transfer> list) {
    while (!aborted) {
      bool open = false;
      for (Transfer& t : list) {
        if (t.done < t.bytes) move(t);
        open |= t.done < t.bytes;
      }
      if (!open) return;
      rest_a_moment();
    }
  }
};

namespace {

struct Queued {
  ncclComm* comm;
  CUstream stream;
  std::vector<Transfer> transfers;
};
thread_local int group_depth = 0;
thread_local std::vector<Queued> queued;

void enqueue(CUstream stream, std::function<void()> fn) {
  auto* held = new std::function<void()>(std::move(fn));
  cuLaunchHostFunc(
      stream,
      [](void* data) {
        std::unique_ptr<std::function<void()>> job(static_cast<std::function<void()>*>(data));
        (*job)();
      },
      held);
}

// Faults that the rule asks for; false: nothing is to be started.
bool begins(ncclComm* comm) {
  static const char* rule = std::getenv("SG_FAKE_NCCL");
  if (!rule) return true;
  const std::string text(rule);
  if (text.starts_with("die")) {
    if (comm->counted("die")) ::_exit(9);
  } else if (text.starts_with("hang")) {
    if (comm->counted("hang")) return false;
  } else if (text.starts_with("error")) {
    if (comm->counted("error")) comm->failed = true;
    return !comm->failed;
  }
  return true;
}

void start(ncclComm* comm, CUstream stream, std::vector<Transfer> transfers, std::function<void()> after = {}) {
  if (!begins(comm)) {  // never comes to its end, unless it is aborted
    enqueue(stream, [comm] {
      while (!comm->aborted) rest_a_moment();
    });
    return;
  }
  enqueue(stream, [comm, transfers = std::move(transfers), after = std::move(after)] {
    comm->run(transfers);
    if (after && !comm->aborted) after();
  });
}

size_t size_of(ncclDataType_t t) {
  switch (t) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

template <class T, class Op>
void fold(unsigned char* acc, const unsigned char* x, size_t count, Op op) {
  for (size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, acc + i * sizeof(T), sizeof a);
    std::memcpy(&b, x + i * sizeof(T), sizeof b);
    a = op(a, b);
    std::memcpy(acc + i * sizeof(T), &a, sizeof a);
  }
}

template <class T>
T merge(ncclRedOp_t op, T a, T b) {
  if (op == ncclProd) return static_cast<T>(a * b);
  if (op == ncclMin) return b < a ? b : a;
  if (op == ncclMax) return a < b ? b : a;
  return static_cast<T>(a + b);
}

void reduce_into(ncclDataType_t type, ncclRedOp_t op, unsigned char* acc, const unsigned char* x, size_t count) {
  using namespace sg::cuda;
  switch (type) {
    case ncclFloat64: return fold<double>(acc, x, count, [=](double a, double b) { return merge(op, a, b); });
    case ncclFloat32: return fold<float>(acc, x, count, [=](float a, float b) { return merge(op, a, b); });
    case ncclFloat16:
      return fold<uint16_t>(acc, x, count,
                            [=](uint16_t a, uint16_t b) { return to_half(merge(op, from_half(a), from_half(b))); });
    case ncclBfloat16:
      return fold<uint16_t>(acc, x, count,
                            [=](uint16_t a, uint16_t b) { return to_brain(merge(op, from_brain(a), from_brain(b))); });
    case ncclInt64: return fold<int64_t>(acc, x, count, [=](int64_t a, int64_t b) { return merge(op, a, b); });
    case ncclInt32: return fold<int32_t>(acc, x, count, [=](int32_t a, int32_t b) { return merge(op, a, b); });
    case ncclInt8: return fold<int8_t>(acc, x, count, [=](int8_t a, int8_t b) { return merge(op, a, b); });
    default: return fold<uint8_t>(acc, x, count, [=](uint8_t a, uint8_t b) { return merge(op, a, b); });
  }
}

void divide(ncclDataType_t type, unsigned char* acc, size_t count, int by) {
  using namespace sg::cuda;
  const float n = static_cast<float>(by);
  if (type == ncclFloat64) fold<double>(acc, acc, count, [=](double a, double) { return a / by; });
  if (type == ncclFloat32) fold<float>(acc, acc, count, [=](float a, float) { return a / n; });
  if (type == ncclFloat16)
    fold<uint16_t>(acc, acc, count, [=](uint16_t a, uint16_t) { return to_half(from_half(a) / n); });
  if (type == ncclBfloat16)
    fold<uint16_t>(acc, acc, count, [=](uint16_t a, uint16_t) { return to_brain(from_brain(a) / n); });
}

unsigned char* bytes_of(const void* p) { return static_cast<unsigned char*>(const_cast<void*>(p)); }

// Gives everybody `bytes` of the input (at `step` apart for each peer, 0 = the same), and gets theirs into `parts`.
std::vector<Transfer> all_pairs(ncclComm* comm, const void* input, size_t bytes, size_t step, unsigned char* parts) {
  std::vector<Transfer> out;
  for (int peer = 0; peer < comm->ranks; ++peer) {
    out.push_back({true, peer, bytes_of(input) + static_cast<size_t>(peer) * step, bytes});
    out.push_back({false, peer, parts + static_cast<size_t>(peer) * bytes, bytes});
  }
  return out;
}

ncclResult_t reduce_all(const void* input, void* output, size_t count, size_t step, ncclDataType_t type, ncclRedOp_t op,
                        ncclComm* comm, CUstream stream) {
  const size_t bytes = count * size_of(type);
  auto parts = std::make_shared<std::vector<unsigned char>>(bytes * static_cast<size_t>(comm->ranks));
  start(comm, stream, all_pairs(comm, input, bytes, step, parts->data()), [=] {
    std::vector<unsigned char> acc(parts->begin() + static_cast<ptrdiff_t>(bytes) * comm->rank,
                                   parts->begin() + static_cast<ptrdiff_t>(bytes) * (comm->rank + 1));
    for (int i = 1; i < comm->ranks; ++i)
      reduce_into(type, op, acc.data(), parts->data() + bytes * static_cast<size_t>((comm->rank + i) % comm->ranks),
                  count);
    if (op == ncclAvg) divide(type, acc.data(), count, comm->ranks);
    std::memcpy(output, acc.data(), bytes);
  });
  return ncclSuccess;
}

bool rule_is(const char* what, int rank = -1) {
  const char* rule = std::getenv("SG_FAKE_NCCL");
  const size_t length = std::strlen(what);
  if (!rule || std::strncmp(rule, what, length) != 0 || rule[length] != ':') return false;
  return rank < 0 || std::atoi(rule + length + 1) == rank;
}

Region* open_region(const ncclUniqueId& id) {
  const int file = shm_open(id.internal, O_RDWR, 0600);
  if (file < 0) return nullptr;
  void* memory = mmap(nullptr, sizeof(Region), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<Region*>(memory);
}

}  // namespace

#define STUB extern "C" __attribute__((visibility("default"))) ncclResult_t

STUB ncclGetVersion(int* version) {
  const char* text = std::getenv("SG_FAKE_NCCL_VERSION");
  *version = text ? std::atoi(text) : 22809;
  return ncclSuccess;
}
STUB ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> count{0};
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "/sg-fake-nccl-%d-%d", static_cast<int>(getpid()), ++count);
  if (rule_is("id")) return ncclSystemError;
  shm_unlink(id->internal);  // what a process that had this number and died has left
  const int file = shm_open(id->internal, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (file < 0 || ftruncate(file, sizeof(Region)) != 0) return ncclSystemError;
  close(file);
  return ncclSuccess;
}
STUB ncclCommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (ranks > kMostRanks || !config || config->blocking != 0) return ncclInvalidArgument;
  auto* comm = new ncclComm;
  comm->name = id.internal;
  comm->region = open_region(id);
  comm->rank = rank;
  comm->ranks = ranks;
  if (!comm->region || rule_is("init", rank)) return ncclSystemError;
  *out = comm;
  if (rule_is("absent", rank)) return ncclInProgress;
  if (comm->region->here.fetch_add(1) + 1 == static_cast<uint32_t>(ranks))
    shm_unlink(id.internal);  // the memory stays while it is mapped
  *out = comm;
  return ncclInProgress;
}
STUB ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->failed                                                     ? ncclRemoteError
           : comm->region->here.load() < static_cast<uint32_t>(comm->ranks) ? ncclInProgress
                                                                            : ncclSuccess;
  return ncclSuccess;
}
STUB ncclCommAbort(ncclComm_t comm) {
  shm_unlink(comm->name.c_str());  // where not all have come
  comm->aborted = true;
  return ncclSuccess;
}  // kept: the stream may still look at it
STUB ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
STUB ncclCommDestroy(ncclComm_t comm) {
  munmap(comm->region, sizeof(Region));
  delete comm;
  return ncclSuccess;
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetErrorString(ncclResult_t code) {
  return code == ncclRemoteError ? "remote process exited or there was a network error" : "an error of the stand-in";
}
STUB ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
STUB ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  for (Queued& q : queued) start(q.comm, q.stream, std::move(q.transfers));
  queued.clear();
  return ncclSuccess;
}
static ncclResult_t add(Transfer t, ncclComm* comm, cudaStream_t stream) {
  auto* s = reinterpret_cast<CUstream>(stream);
  for (Queued& q : queued)
    if (q.comm == comm && q.stream == s) return q.transfers.push_back(t), ncclSuccess;
  queued.push_back({comm, s, {t}});
  if (group_depth == 0) ++group_depth, ncclGroupEnd();
  return ncclSuccess;
}
STUB ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({true, peer, bytes_of(data), count * size_of(type)}, comm, stream);
}
STUB ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({false, peer, bytes_of(data), count * size_of(type)}, comm, stream);
}
STUB ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type, ncclComm_t comm,
                   cudaStream_t stream) {
  if (comm->refuses()) return ncclSystemError;
  start(comm, reinterpret_cast<CUstream>(stream), all_pairs(comm, input, count * size_of(type), 0, bytes_of(output)));
  return ncclSuccess;
}
STUB ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                   cudaStream_t stream) {
  if (comm->refuses()) return ncclSystemError;
  const size_t bytes = count * size_of(type);
  std::vector<Transfer> list;
  for (int peer = 0; comm->rank == root && peer < comm->ranks; ++peer)
    list.push_back({true, peer, bytes_of(input), bytes});
  list.push_back({false, root, bytes_of(output), bytes});
  start(comm, reinterpret_cast<CUstream>(stream), std::move(list));
  return ncclSuccess;
}
STUB ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                   cudaStream_t stream) {
  if (comm->refuses()) return ncclSystemError;
  return reduce_all(input, output, count, 0, type, op, comm, reinterpret_cast<CUstream>(stream));
}
STUB ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                       ncclComm_t comm, cudaStream_t stream) {
  if (comm->refuses()) return ncclSystemError;
  return reduce_all(input, output, count, count * size_of(type), type, op, comm, reinterpret_cast<CUstream>(stream));
}
STUB ncclRedOpCreatePreMulSum(ncclRedOp_t*, void*, ncclDataType_t, ncclScalarResidence_t, ncclComm_t) {
  return ncclInvalidUsage;
}
STUB ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) { return ncclSuccess; }
