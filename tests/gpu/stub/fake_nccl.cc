// libnccl.so.2 for tests: NCCL's calls over shared memory, between threads and between processes.
//
// Everything is made of messages through one mailbox per pair of ranks, moved by the stream's thread when the stream
// gets to them. Sums begin with the rank's own input, so their order is not that of the ranks: as with NCCL, nothing
// can rely on it.
//   SG_FAKE_NCCL=die:R:N     rank R ends its process at its N-th collective
//   SG_FAKE_NCCL=hang:R:N    rank R never starts its N-th collective
//   SG_FAKE_NCCL=stuck:R:N   rank R's N-th collective is never issued
//   SG_FAKE_NCCL=error:R:N   rank R's communicator is in error from its N-th collective on
//   SG_FAKE_NCCL=refuse:R:N  rank R's N-th collective returns an error at once
//   SG_FAKE_NCCL=init:R:1    the creation of rank R's communicator fails
//   SG_FAKE_NCCL=absent:R:1  rank R never joins the communicator of the others
//   SG_FAKE_NCCL=id:0:1      no unique id can be had
//   SG_FAKE_NCCL=split:R:N   rank R's N-th split is in error while it is under way
//   SG_FAKE_NCCL=apart:R:N   rank R never joins the N-th split of the others
//   SG_FAKE_NCCL_FAIL=F:N    the N-th call of the function F in a process fails
//   SG_FAKE_NCCL_LOG=FILE    logs each unique id, each rank that joins with one, each split, each rank made by a split,
//                            and for each request the priority of its stream
// Like NCCL, it issues a request gradually, while it is polled for its state, and accepts no other for that
// communicator meanwhile. The first request that needs a connection is not issued before the ranks on its other side
// have made theirs (nccl_comm.h). It runs the launches of one communicator one after the other, whatever the streams,
// and so those of communicators that share resources (splitShare). A split is under way on the parent, and stores the
// new communicator when it has ended. What NCCL forbids ends the process: to split a communicator that is at work, to
// destroy a parent before its children. With SG_FAKE_NCCL_OLD the library cannot split.
#include <cuda.h>
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

#define SG_HOST_KERNELS
#include "tests/gpu/stub/context.h"
#include "tests/gpu/stub/nccl_comm.h"
#include "tests/gpu/stub/nccl_sums.h"

namespace {

using stub::forbidden;
using stub::kMostRanks;
using stub::Region;
using stub::rest_a_moment;
using stub::size_of;
using stub::Transfer;

void note(const std::string& line) {
  if (const char* file = std::getenv("SG_FAKE_NCCL_LOG"))
    if (std::FILE* f = std::fopen(file, "a")) std::fprintf(f, "%s\n", line.c_str()), std::fclose(f);
}

bool fails(const char* name) {
  static const char* rule = std::getenv("SG_FAKE_NCCL_FAIL");
  static std::atomic<int> calls{0};
  const std::string text(rule ? rule : "");
  const size_t colon = text.find(':');
  return colon != std::string::npos && text.compare(0, colon, name) == 0 &&
         ++calls == std::atoi(text.c_str() + colon + 1);
}

struct Queued {
  ncclComm* comm;
  CUstream stream;
  std::vector<Transfer> transfers;
};
thread_local int group_depth = 0;
thread_local std::vector<Queued> queued;

bool rule_is(const char* what, int rank = -1) {
  const char* rule = std::getenv("SG_FAKE_NCCL");
  const size_t length = std::strlen(what);
  if (!rule || std::strncmp(rule, what, length) != 0 || rule[length] != ':') return false;
  return rank < 0 || std::atoi(rule + length + 1) == rank;
}

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

// Applies the faults of the rule; false: nothing is to be started.
bool begins(ncclComm* comm) {
  static const char* rule = std::getenv("SG_FAKE_NCCL");
  if (!rule) return true;
  const std::string text(rule);
  if (text.starts_with("die")) {
    if (comm->counted("die")) ::_exit(9);
  } else if (text.starts_with("hang")) {
    if (comm->counted("hang")) return false;
  } else if (text.starts_with("error")) {
    if (comm->counted("error")) comm->breaks = true;
    return !comm->breaks;
  }
  return true;
}

void start(ncclComm* comm, CUstream stream, std::vector<Transfer> transfers, std::function<void()> after = {}) {
  const uint64_t turn = comm->turns->given++;
  ++comm->under_way;
  if (!begins(comm)) {  // does not end unless it is aborted
    enqueue(stream, [comm] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it was issued normally
      if (comm->breaks) comm->failed = true;
      while (!comm->aborted) rest_a_moment();
    });
    return;
  }
  enqueue(stream, [comm, turn, transfers = std::move(transfers), after = std::move(after)] {
    while (comm->turns->now != turn && !comm->aborted) rest_a_moment();
    comm->run(transfers);
    if (after && !comm->aborted) after();
    if (!comm->aborted) ++comm->turns->now;
    --comm->under_way;
  });
}

// The kinds of collectives that connect each for itself.
enum Kind { kPairs = -1, kAllGather, kBroadcast, kAllReduce, kReduceScatter };

ncclResult_t issue(Kind kind, ncclComm* comm, CUstream stream, std::vector<Transfer> transfers,
                   std::function<void()> after = {}) {
  note("stream: priority " + std::to_string(stub_stream_priority(stream)));
  comm->begin_to_connect(kind, transfers);
  if (rule_is("stuck")) comm->is_stuck = comm->counted("stuck");
  comm->being_issued = [=] { start(comm, stream, transfers, after); };
  return ncclInProgress;
}

unsigned char* bytes_of(const void* p) { return static_cast<unsigned char*>(const_cast<void*>(p)); }

// Sends `bytes` of the input to every peer (`step` apart for each; 0: the same), and receives theirs into `parts`.
std::vector<Transfer> all_pairs(ncclComm* comm, const void* input, size_t bytes, size_t step, unsigned char* parts) {
  std::vector<Transfer> out;
  for (int peer = 0; peer < comm->ranks; ++peer) {
    out.push_back({true, peer, bytes_of(input) + static_cast<size_t>(peer) * step, bytes});
    out.push_back({false, peer, parts + static_cast<size_t>(peer) * bytes, bytes});
  }
  return out;
}

ncclResult_t reduce_all(Kind kind, const void* input, void* output, size_t count, size_t step, ncclDataType_t type,
                        ncclRedOp_t op, ncclComm* comm, CUstream stream) {
  const size_t bytes = count * size_of(type);
  auto parts = std::make_shared<std::vector<unsigned char>>(bytes * static_cast<size_t>(comm->ranks));
  return issue(kind, comm, stream, all_pairs(comm, input, bytes, step, parts->data()), [=] {
    std::vector<unsigned char> acc(parts->begin() + static_cast<ptrdiff_t>(bytes) * comm->rank,
                                   parts->begin() + static_cast<ptrdiff_t>(bytes) * (comm->rank + 1));
    for (int i = 1; i < comm->ranks; ++i)
      stub::reduce_into(type, op, acc.data(),
                        parts->data() + bytes * static_cast<size_t>((comm->rank + i) % comm->ranks), count);
    if (op == ncclAvg) stub::divide(type, acc.data(), count, comm->ranks);
    std::memcpy(output, acc.data(), bytes);
  });
}

}  // namespace

#define STUB extern "C" __attribute__((visibility("default"))) ncclResult_t

#define FAIL_IF_ASKED \
  if (fails(__func__)) return ncclSystemError

STUB ncclGetVersion(int* version) {
  FAIL_IF_ASKED;
  const char* text = std::getenv("SG_FAKE_NCCL_VERSION");
  *version = text ? std::atoi(text) : 22809;
  return ncclSuccess;
}
STUB ncclGetUniqueId(ncclUniqueId* id) {
  FAIL_IF_ASKED;
  static std::atomic<int> count{0};
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "/sg-fake-nccl-%d-%d", static_cast<int>(getpid()), ++count);
  if (rule_is("id")) return ncclSystemError;
  note("id");
  return stub::make_region(id->internal) ? ncclSuccess : ncclSystemError;
}

// Null if its memory is missing.
static ncclComm* new_comm(const std::string& name, int rank, int ranks) {
  auto comm = std::make_unique<ncclComm>();
  comm->name = name;
  comm->region = stub::open_region(name.c_str());
  comm->rank = rank;
  comm->ranks = ranks;
  return comm->region ? comm.release() : nullptr;
}
static void arrive(ncclComm* comm) {
  if (comm->region->here.fetch_add(1) + 1 == static_cast<uint32_t>(comm->ranks))
    shm_unlink(comm->name.c_str());  // the memory stays while it is mapped
}

STUB ncclCommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  FAIL_IF_ASKED;
  if (stub_current_context() == 0) return ncclUnhandledCudaError;
  if (ranks > kMostRanks || !config || config->blocking != 0) return ncclInvalidArgument;
  note("met: rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  ncclComm* comm = rule_is("init", rank) ? nullptr : new_comm(id.internal, rank, ranks);
  if (!comm) return ncclSystemError;
  comm->shares = config->splitShare == 1;
  *out = comm;
  if (!rule_is("absent", rank)) arrive(comm);
  return ncclInProgress;
}

#ifndef SG_FAKE_NCCL_OLD
// Whether the rule is for that rank and that call of it.
static bool is_rule(const char* what, int rank, int call) {
  const char* colon = rule_is(what, rank) ? std::strrchr(std::getenv("SG_FAKE_NCCL"), ':') : nullptr;
  return colon && std::atoi(colon + 1) == call;
}

STUB ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* out, ncclConfig_t* config) {
  FAIL_IF_ASKED;
  if (comm->is_busy() || comm->splits == stub::kMostSplits) return ncclInvalidUsage;
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) return ncclInvalidArgument;
  if (!config || config->blocking != 0) return ncclInvalidArgument;
  if (comm->under_way > 0) forbidden("what is split is at work");
  note("split: rank " + std::to_string(comm->rank) + ", color " + std::to_string(color) + ", key " +
       std::to_string(key));
  *out = nullptr;
  stub::Split& split = comm->region->splits[comm->splits++];
  split.color[comm->rank] = color;
  split.key[comm->rank] = key;
  comm->is_splitting = true;
  comm->split_off = out;
  if (is_rule("split", comm->rank, comm->splits)) comm->failed = true;
  if (!is_rule("apart", comm->rank, comm->splits)) ++split.here;
  return ncclInProgress;
}

// Whether the split is done: all ranks have given their colors and the new communicator exists.
static bool has_split(ncclComm* comm) {
  stub::Split& split = comm->region->splits[comm->splits - 1];
  if (split.here < static_cast<uint32_t>(comm->ranks)) return false;
  const int color = split.color[comm->rank];
  if (color == NCCL_SPLIT_NOCOLOR) return true;
  std::vector<int> members;
  for (int r = 0; r < comm->ranks; ++r)
    if (split.color[r] == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return split.key[a] < split.key[b]; });
  const int leader = members[0];
  const std::string name = comm->name + "-" + std::to_string(comm->splits) + "-" + std::to_string(color);
  if (leader == comm->rank && !split.made[leader]) split.made[leader] = stub::make_region(name.c_str()) ? 1 : 2;
  if (split.made[leader] == 0) return false;
  const auto rank = std::find(members.begin(), members.end(), comm->rank) - members.begin();
  ncclComm* child = new_comm(name, static_cast<int>(rank), static_cast<int>(members.size()));
  if (!child) return comm->failed = true;
  note("split off: rank " + std::to_string(rank) + " of " + std::to_string(members.size()));
  if (comm->shares) child->turns = comm->turns, child->shares = true;
  child->parent = comm;
  ++comm->children;
  arrive(child);
  *comm->split_off = child;
  return true;
}
#else
static bool has_split(ncclComm*) { return true; }
#endif

STUB ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  FAIL_IF_ASKED;
  if (comm->failed) return *state = ncclRemoteError, ncclSuccess;
  *state = ncclInProgress;
  if (comm->is_stuck) return ncclSuccess;
  if (comm->being_issued && !comm->is_connected()) return ncclSuccess;
  if (comm->being_issued) return std::exchange(comm->being_issued, {})(), ncclSuccess;
  if (comm->region->here.load() < static_cast<uint32_t>(comm->ranks)) return ncclSuccess;
  if (comm->is_splitting && !has_split(comm)) return ncclSuccess;
  comm->is_splitting = false;
  *state = comm->failed ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}

static void leave_family(ncclComm* comm) {
  if (comm->children > 0) forbidden("what was split ends before what was split off");
  if (comm->parent) --comm->parent->children;
  comm->parent = nullptr;
}
STUB ncclCommAbort(ncclComm_t comm) {
  leave_family(comm);
  shm_unlink(comm->name.c_str());  // if not all have joined
  comm->aborted = true;
  return ncclSuccess;
}  // not freed: the stream may still look at it
STUB ncclCommFinalize(ncclComm_t) {
  FAIL_IF_ASKED;
  return ncclSuccess;
}
STUB ncclCommDestroy(ncclComm_t comm) {
  leave_family(comm);
  munmap(comm->region, sizeof(Region));
  delete comm;
  return ncclSuccess;
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetErrorString(ncclResult_t code) {
  return code == ncclRemoteError ? "remote process exited or there was a network error" : "an error of the stand-in";
}
STUB ncclGroupStart() {
  FAIL_IF_ASKED;
  ++group_depth;
  return ncclSuccess;
}
STUB ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  if (fails(__func__)) return queued.clear(), ncclSystemError;
  const ncclResult_t code = queued.empty() ? ncclSuccess : ncclInProgress;
  for (Queued& q : queued) issue(kPairs, q.comm, q.stream, std::move(q.transfers));
  queued.clear();
  return code;
}
static ncclResult_t add(Transfer t, ncclComm* comm, cudaStream_t stream) {
  if (comm->is_busy()) return ncclInvalidArgument;
  auto* s = reinterpret_cast<CUstream>(stream);
  for (Queued& q : queued)
    if (q.comm == comm && q.stream == s) return q.transfers.push_back(t), ncclSuccess;
  queued.push_back({comm, s, {t}});
  return group_depth == 0 ? ++group_depth, ncclGroupEnd() : ncclSuccess;
}
STUB ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  FAIL_IF_ASKED;
  return add({true, peer, bytes_of(data), count * size_of(type)}, comm, stream);
}
STUB ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  FAIL_IF_ASKED;
  return add({false, peer, bytes_of(data), count * size_of(type)}, comm, stream);
}
STUB ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type, ncclComm_t comm,
                   cudaStream_t stream) {
  FAIL_IF_ASKED;
  if (comm->refuses()) return ncclSystemError;
  return issue(kAllGather, comm, reinterpret_cast<CUstream>(stream),
               all_pairs(comm, input, count * size_of(type), 0, bytes_of(output)));
}
STUB ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                   cudaStream_t stream) {
  FAIL_IF_ASKED;
  if (comm->refuses()) return ncclSystemError;
  const size_t bytes = count * size_of(type);
  std::vector<Transfer> list;
  for (int peer = 0; comm->rank == root && peer < comm->ranks; ++peer)
    list.push_back({true, peer, bytes_of(input), bytes});
  list.push_back({false, root, bytes_of(output), bytes});
  return issue(kBroadcast, comm, reinterpret_cast<CUstream>(stream), std::move(list));
}
STUB ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                   cudaStream_t stream) {
  FAIL_IF_ASKED;
  if (comm->refuses()) return ncclSystemError;
  return reduce_all(kAllReduce, input, output, count, 0, type, op, comm, reinterpret_cast<CUstream>(stream));
}
STUB ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                       ncclComm_t comm, cudaStream_t stream) {
  FAIL_IF_ASKED;
  if (comm->refuses()) return ncclSystemError;
  return reduce_all(kReduceScatter, input, output, count, count * size_of(type), type, op, comm,
                    reinterpret_cast<CUstream>(stream));
}
STUB ncclRedOpCreatePreMulSum(ncclRedOp_t*, void*, ncclDataType_t, ncclScalarResidence_t, ncclComm_t) {
  return ncclInvalidUsage;
}
STUB ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) { return ncclSuccess; }
