#include "librun/cuda/comm_nccl.h"

#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <thread>

#include "librun/cuda/comm_over.h"
#include "librun/cuda/kernels/slots.h"

// clang-format off
#define SG_NCCL_FUNCTIONS(X)                                                                                   \
  X(ncclGetVersion)                                                                                            \
  X(ncclGetUniqueId) X(ncclCommInitRankConfig) X(ncclCommAbort) X(ncclCommDestroy) X(ncclCommFinalize)         \
      X(ncclCommGetAsyncError) X(ncclGetErrorString) X(ncclGroupStart) X(ncclGroupEnd) X(ncclSend) X(ncclRecv) \
          X(ncclAllGather) X(ncclBroadcast) X(ncclAllReduce) X(ncclReduceScatter) X(ncclRedOpCreatePreMulSum)  \
              X(ncclRedOpDestroy)
// clang-format on

namespace sg::cuda {
namespace {

constexpr int kOldestNccl = 21800;  // non-blocking communicators that can be aborted, whole
constexpr const char* kRemedy = "NCCL 2.18 or newer (libnccl.so.2) on the library path, or --comm local";
constexpr size_t kRemembered = 3;  // collectives of a rank that its last words name: ended, and open

struct Nccl {
#define SG_MEMBER(name) decltype(&::name) name = nullptr;
  SG_NCCL_FUNCTIONS(SG_MEMBER)
#undef SG_MEMBER
  int version = 0;
};

Result<Nccl> open_nccl() {
  SG_ASSIGN(void* library, open_library("libnccl.so.2", kRemedy));
  Nccl out;
#define SG_FIND(name)                                                    \
  out.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  if (!out.name) return Error{ErrorKind::missing, "libnccl.so.2 has no " #name, {}, kRemedy};
  SG_NCCL_FUNCTIONS(SG_FIND)
#undef SG_FIND
  if (out.ncclGetVersion(&out.version) != ncclSuccess || out.version < kOldestNccl)
    return Error{
        ErrorKind::missing,
        "NCCL " + std::to_string(out.version / 10000) + "." + std::to_string(out.version / 100 % 100) + " is too old",
        {},
        kRemedy};
  return out;
}

Result<const Nccl*> load_nccl() {
  static const Result<Nccl> nccl = open_nccl();
  if (!nccl.ok()) return nccl.error();
  return &*nccl;
}

std::string hex_of(const ncclUniqueId& id) {
  std::string out;
  for (char c : id.internal) {
    constexpr const char* kDigits = "0123456789abcdef";
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

std::optional<ncclUniqueId> id_of(std::string_view hex) {
  ncclUniqueId id;
  if (hex.size() != 2 * sizeof id.internal) return std::nullopt;
  auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (size_t i = 0; i < sizeof id.internal; ++i)
    id.internal[i] = static_cast<char>(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
  return id;
}

// What NCCL sums by itself; none: an exchange, and our own sum.
std::optional<ncclDataType_t> nccl_type(DType t) {
  switch (t) {
    case DType::f64:
    case DType::c128: return ncclFloat64;
    case DType::f32:
    case DType::c64: return ncclFloat32;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    case DType::i64: return ncclInt64;
    case DType::i32: return ncclInt32;
    case DType::i8: return ncclInt8;
    case DType::u8: return ncclUint8;
    default: return std::nullopt;
  }
}

std::optional<ncclRedOp_t> nccl_reduction(ReduceKind kind, DType t) {
  switch (kind) {
    case ReduceKind::sum: return ncclSum;
    case ReduceKind::average: return is_floating(t) ? std::optional(ncclAvg) : std::nullopt;
    case ReduceKind::product: return is_complex(t) ? std::nullopt : std::optional(ncclProd);
    case ReduceKind::minimum: return is_floating(t) ? std::nullopt : std::optional(ncclMin);  // a NaN has to win
    case ReduceKind::maximum: return is_floating(t) ? std::nullopt : std::optional(ncclMax);
    default: return std::nullopt;
  }
}

SlotReduce slot_reduction(ReduceKind kind) { return static_cast<SlotReduce>(kind); }
static_assert(static_cast<int>(SlotReduce::bit_xor) == static_cast<int>(ReduceKind::bit_xor));

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class NcclCommunicator : public CommunicatorOver {
 public:
  NcclCommunicator(const Nccl& nccl, Device& device, Communicator& host, const BackendOptions& options)
      : CommunicatorOver(host), nccl_(nccl), device_(device), options_(options) {}

  ~NcclCommunicator() override {
    device_.set_watch({});
    const bool failed = !is_ready_ || host_.failure().has_value();  // who never came is not waited for
    for (Channel& channel : channels_) {
      if (channel.comm && failed) nccl_.ncclCommAbort(channel.comm);
      if (channel.stream && !failed) device_.driver().cuStreamSynchronize(channel.stream);
      if (channel.comm && !failed)
        nccl_.ncclCommFinalize(channel.comm), settle(channel.comm), nccl_.ncclCommDestroy(channel.comm);
      if (channel.stream) device_.driver().cuStreamDestroy_v2(channel.stream);
    }
    for (auto& [ticket, flight] : flights_) drop(flight);
    if (arrived_) device_.driver().cuEventDestroy_v2(arrived_);
  }

  // One NCCL communicator a group, in the order of the file on every rank. The first member's id goes to all.
  Status start() {
    const std::vector<RankGroup> groups = groups_of_rank(*options_.job, rank());
    std::string mine;
    for (size_t g = 0; g < groups.size(); ++g) {
      if (groups[g].ranks.empty() || groups[g].position != 0) continue;
      ncclUniqueId id;
      SG_TRY(check_nccl(nccl_.ncclGetUniqueId(&id), "ncclGetUniqueId"));
      mine += std::to_string(g) + " " + hex_of(id) + "\n";
    }
    SG_ASSIGN(std::vector<std::string> all, host_.exchange(mine));
    SG_CU(device_.driver(), cuEventCreate(&arrived_, CU_EVENT_DISABLE_TIMING));
    channels_.resize(groups.size());
    for (size_t g = 0; g < groups.size(); ++g)
      if (!groups[g].ranks.empty()) SG_TRY(join(g, groups[g], all[groups[g].ranks[0]]));
    device_.set_watch([this] { return watch(); });
    is_ready_ = true;
    return ok_status();
  }

  Result<Ticket> launch(const CollectiveCall& call) override {
    if (auto failed = host_.failure()) return *failed;
    const RankGroup& members = host_.group(call.group);
    SG_TRY(check_call(call, members.ranks.size()));
    Channel& channel = channels_[call.group.index];
    const Driver& driver = device_.driver();
    Flight flight;
    flight.label = std::string(call.label);
    flight.group = members.name;
    flight.kind = call.kind;
    flight.number = ++launched_;
    SG_CU(driver, cuEventRecord(arrived_, device_.stream()));
    SG_CU(driver, cuStreamWaitEvent(channel.stream, arrived_, 0));
    SG_TRY(issue(call, members, channel, &flight));
    SG_CU(driver, cuEventCreate(&flight.done, CU_EVENT_DISABLE_TIMING));
    SG_CU(driver, cuEventRecord(flight.done, channel.stream));
    flight.since_s = now_s();
    flights_.emplace(flight.number, std::move(flight));
    return Ticket{launched_};
  }

  // The compute stream waits; the host goes on.
  Status wait(Ticket ticket) override {
    auto it = flights_.find(ticket.id);
    if (it == flights_.end()) return ok_status();
    SG_CU(device_.driver(), cuStreamWaitEvent(device_.stream(), it->second.done, 0));
    it->second.waited = true;
    collect();
    return ok_status();
  }

  Status drain() override {
    std::vector<uint64_t> open;
    for (auto& [number, flight] : flights_) open.push_back(number);
    for (uint64_t number : open) SG_TRY(wait(Ticket{number}));
    return device_.synchronize();
  }

 private:
  struct Channel {
    ncclComm_t comm = nullptr;
    CUstream stream = nullptr;
  };
  struct Flight {  // a collective on its way, for as long as its event is needed
    uint64_t number = 0;
    CollectiveKind kind = CollectiveKind::barrier;
    std::string label, group;
    CUevent done = nullptr;
    double since_s = 0;
    bool waited = false;
    std::vector<std::byte*> staging;
  };

  Status check_nccl(ncclResult_t code, const char* what) const {
    if (code == ncclSuccess || code == ncclInProgress) return ok_status();
    return Error{ErrorKind::rank_failed,
                 "rank " + std::to_string(rank()) + ": " + what + " failed: " + nccl_.ncclGetErrorString(code)};
  }

  ncclResult_t settle(ncclComm_t comm) const {
    ncclResult_t state = ncclInProgress;
    const double until = now_s() + 10;
    while (nccl_.ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclInProgress && now_s() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return state;
  }

  Status join(size_t g, const RankGroup& group, std::string_view ids) {
    std::optional<ncclUniqueId> id;
    const std::string title = std::to_string(g) + " ";
    for (size_t at = 0; at < ids.size();) {
      const size_t end = std::min(ids.find('\n', at), ids.size());
      if (ids.substr(at, end - at).starts_with(title))
        id = id_of(ids.substr(at + title.size(), end - at - title.size()));
      at = end + 1;
    }
    if (!id)
      return Error{ErrorKind::rank_failed,
                   "rank " + std::to_string(group.ranks[0]) + " gave no NCCL id for group " + group.name};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    Channel& channel = channels_[g];
    SG_TRY(check_nccl(nccl_.ncclCommInitRankConfig(&channel.comm, static_cast<int>(group.ranks.size()), *id,
                                                   static_cast<int>(group.position), &config),
                      "ncclCommInitRankConfig"));
    SG_TRY(come_together(channel.comm, group));
    SG_CU(device_.driver(), cuStreamCreate(&channel.stream, CU_STREAM_NON_BLOCKING));
    return ok_status();
  }

  Status come_together(ncclComm_t comm, const RankGroup& group) {
    const double since = now_s();
    for (;;) {
      ncclResult_t state = ncclInProgress;
      SG_TRY(check_nccl(nccl_.ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError"));
      if (state != ncclInProgress) return check_nccl(state, "ncclCommInitRankConfig");
      if (auto failed = host_.failure()) return *failed;
      if (options_.timeout_s > 0 && now_s() - since > options_.timeout_s)
        return Error{ErrorKind::rank_failed, "rank " + std::to_string(rank()) + " waits since " +
                                                 std::to_string(static_cast<int>(now_s() - since)) +
                                                 " s for the other ranks of group " + group.name + " to start NCCL"};
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // --- the collectives ---

  cudaStream_t stream(const Channel& c) const { return reinterpret_cast<cudaStream_t>(c.stream); }

  std::byte* stage(Flight* flight, int64_t bytes) {
    std::byte* memory = device_.memory().take(bytes);
    if (memory) flight->staging.push_back(memory);
    return memory;
  }

  Status issue(const CollectiveCall& call, const RankGroup& members, Channel& channel, Flight* flight) {
    const auto n = static_cast<int64_t>(members.ranks.size());
    const Tensor &in = call.input, &out = call.output;
    switch (call.kind) {
      case CollectiveKind::barrier: return ok_status();
      case CollectiveKind::all_gather:
        return check_nccl(nccl_.ncclAllGather(in.data, out.data, static_cast<size_t>(in.bytes()), ncclInt8,
                                              channel.comm, stream(channel)),
                          "ncclAllGather");
      case CollectiveKind::broadcast: {
        const bool is_root = members.position == call.root;
        return check_nccl(nccl_.ncclBroadcast(is_root ? in.data : out.data, out.data, static_cast<size_t>(out.bytes()),
                                              ncclInt8, static_cast<int>(call.root), channel.comm, stream(channel)),
                          "ncclBroadcast");
      }
      case CollectiveKind::all_to_all: return exchange_slots(call, n, channel);
      case CollectiveKind::gather:
      case CollectiveKind::scatter: return root_slots(call, members, channel);
      case CollectiveKind::reduce_scatter:
      case CollectiveKind::all_reduce: return reduce(call, members, channel, flight);
    }
    return ok_status();
  }

  // Grouped sends and receives: fn adds them.
  template <class Fn>
  Status grouped(const Fn& fn) {
    SG_TRY(check_nccl(nccl_.ncclGroupStart(), "ncclGroupStart"));
    Status added = fn();
    Status ended = check_nccl(nccl_.ncclGroupEnd(), "ncclGroupEnd");
    return added.ok() ? std::move(ended) : std::move(added);
  }
  Status send(const std::byte* from, int64_t bytes, int64_t to, const Channel& c) {
    if (bytes == 0) return ok_status();
    return check_nccl(
        nccl_.ncclSend(from, static_cast<size_t>(bytes), ncclInt8, static_cast<int>(to), c.comm, stream(c)),
        "ncclSend");
  }
  Status receive(std::byte* to, int64_t bytes, int64_t from, const Channel& c) {
    if (bytes == 0) return ok_status();
    return check_nccl(
        nccl_.ncclRecv(to, static_cast<size_t>(bytes), ncclInt8, static_cast<int>(from), c.comm, stream(c)),
        "ncclRecv");
  }

  Status exchange_slots(const CollectiveCall& call, int64_t n, const Channel& channel) {
    const int64_t unit = dtype_bytes(call.output.dtype);
    auto slot = [&](const std::vector<int64_t>& splits, const Tensor& t, int64_t i) {
      return splits.empty() ? t.bytes() / n : splits[static_cast<size_t>(i)] * unit;
    };
    return grouped([&]() -> Status {
      const std::byte* from = call.input.data;
      std::byte* to = call.output.data;
      for (int64_t i = 0; i < n; ++i) {
        SG_TRY(send(from, slot(call.send, call.input, i), i, channel));
        SG_TRY(receive(to, slot(call.receive, call.output, i), i, channel));
        from += slot(call.send, call.input, i);
        to += slot(call.receive, call.output, i);
      }
      return ok_status();
    });
  }

  Status root_slots(const CollectiveCall& call, const RankGroup& members, const Channel& channel) {
    const auto n = static_cast<int64_t>(members.ranks.size());
    const bool is_root = members.position == call.root, gathers = call.kind == CollectiveKind::gather;
    return grouped([&]() -> Status {
      if (gathers) SG_TRY(send(call.input.data, call.input.bytes(), call.root, channel));
      else SG_TRY(receive(call.output.data, call.output.bytes(), call.root, channel));
      for (int64_t i = 0; is_root && i < n; ++i) {
        const int64_t bytes = (gathers ? call.output : call.input).bytes() / n;
        if (gathers) SG_TRY(receive(call.output.data + i * bytes, bytes, i, channel));
        else SG_TRY(send(call.input.data + i * bytes, bytes, i, channel));
      }
      return ok_status();
    });
  }

  Status reduce(const CollectiveCall& call, const RankGroup& members, Channel& channel, Flight* flight) {
    const auto type = nccl_type(call.output.dtype);
    const auto op = nccl_reduction(call.reduction.kind, call.output.dtype);
    if (options_.deterministic || !type || !op || call.output.dtype == DType::boolean)
      return reduce_in_order(call, members, channel, flight);
    const int64_t parts = is_complex(call.output.dtype) ? 2 : 1;
    const bool all = call.kind == CollectiveKind::all_reduce;
    const auto count = static_cast<size_t>(call.output.elements() * parts);
    if (all)
      return check_nccl(
          nccl_.ncclAllReduce(call.input.data, call.output.data, count, *type, *op, channel.comm, stream(channel)),
          "ncclAllReduce");
    return check_nccl(
        nccl_.ncclReduceScatter(call.input.data, call.output.data, count, *type, *op, channel.comm, stream(channel)),
        "ncclReduceScatter");
  }

  // Every member gets its slot of all members' inputs, adds them up in their order, and for an all-reduce gives the sum
  // to all: as many bytes on the wire as a ring's.
  Status reduce_in_order(const CollectiveCall& call, const RankGroup& members, Channel& channel, Flight* flight) {
    const auto n = static_cast<int64_t>(members.ranks.size());
    const bool all = call.kind == CollectiveKind::all_reduce;
    const int64_t unit = dtype_bytes(call.output.dtype), total = call.input.elements();
    const int64_t slot = all ? (total + n - 1) / n : call.output.elements();
    if (total == 0) return ok_status();
    std::byte* received = stage(flight, slot * n * unit);
    std::byte* sum = all ? stage(flight, slot * n * unit) : call.output.data;
    if (!received || !sum)
      return Error{ErrorKind::missing, "no memory on the GPU for the slots of " + std::string(call.label)};
    auto slot_bytes = [&](int64_t i) { return std::clamp<int64_t>(total - i * slot, 0, slot) * unit; };
    const int64_t mine = slot_bytes(members.position) / unit;
    SG_TRY(grouped([&]() -> Status {
      for (int64_t i = 0; i < n; ++i) {
        SG_TRY(send(call.input.data + i * slot * unit, slot_bytes(i), i, channel));
        SG_TRY(receive(received + i * mine * unit, mine * unit, i, channel));
      }
      return ok_status();
    }));
    std::byte* own = all ? sum + static_cast<int64_t>(members.position) * slot * unit : sum;
    add_slots(call, received, own, n, mine, channel);
    if (!all) return device_.noted();
    SG_TRY(check_nccl(
        nccl_.ncclAllGather(own, sum, static_cast<size_t>(slot * unit), ncclInt8, channel.comm, stream(channel)),
        "ncclAllGather"));
    return check(device_.driver(),
                 device_.driver().cuMemcpyDtoDAsync_v2(reinterpret_cast<CUdeviceptr>(call.output.data),
                                                       reinterpret_cast<CUdeviceptr>(sum),
                                                       static_cast<size_t>(total * unit), channel.stream),
                 "cuMemcpyDtoDAsync");
  }

  void add_slots(const CollectiveCall& call, std::byte* slots, std::byte* to, int64_t members, int64_t count,
                 const Channel& channel) {
    DType type = call.output.dtype;
    const bool pairs = is_complex(type);  // sums of complex numbers are sums of their parts
    if (pairs) type = type == DType::c64 ? DType::f32 : DType::f64, count *= 2;
    SlotArgs args;
    args.slots = Device::view(make_tensor(slots, type, std::array{members, count}));
    args.to = Device::view(make_tensor(to, type, std::array{count}));
    args.kind = slot_reduction(call.reduction.kind);
    args.factor = call.reduction.factor;
    device_.launch_on(channel.stream, "reduce_slots", blocks_for(count), args);
  }

  // --- what goes wrong ---

  void drop(Flight& flight) {
    if (flight.done) device_.driver().cuEventDestroy_v2(flight.done);
    for (std::byte* memory : flight.staging) device_.memory().give(memory);
    flight.staging.clear();
    flight.done = nullptr;
  }

  // Those that have come to their end and been waited for.
  void collect() {
    for (auto it = flights_.begin(); it != flights_.end();) {
      if (!it->second.waited || device_.driver().cuEventQuery(it->second.done) != CUDA_SUCCESS) {
        ++it;
        continue;
      }
      remember(it->second);
      drop(it->second);
      it = flights_.erase(it);
    }
  }

  static std::string text_of(const Flight& flight) {
    return std::string(collective_name(flight.kind)) + " %" + flight.label + " of group " + flight.group + " (number " +
           std::to_string(flight.number) + ")";
  }
  void remember(const Flight& flight) {
    ended_.push_back(text_of(flight));
    if (ended_.size() > kRemembered) ended_.pop_front();
  }

  // The flight record: what has ended last, and what is open, the first of it first.
  std::string record() {
    std::string out = "its last collectives:";
    for (const std::string& text : ended_) out += " " + text + " ended;";
    size_t open = 0;
    for (const auto& [number, flight] : flights_) {
      if (device_.driver().cuEventQuery(flight.done) == CUDA_SUCCESS) out += " " + text_of(flight) + " ended;";
      else if (open++ < kRemembered) out += " " + text_of(flight) + " is open;";
    }
    if (open > kRemembered) out += " " + std::to_string(open - kRemembered) + " more are open;";
    out.pop_back();
    return out;
  }

  Status end_all_with(Error error) {
    error.hint = record();
    host_.abort(error);
    for (Channel& channel : channels_)
      if (channel.comm) nccl_.ncclCommAbort(channel.comm), channel.comm = nullptr;
    return error;
  }

  // Asked while the host waits for the device.
  Status watch() {
    host_.heartbeat().beat();
    if (auto failed = host_.failure()) return end_all_with(*failed);
    for (const Channel& channel : channels_) {
      ncclResult_t state = ncclSuccess;
      if (!channel.comm) continue;
      nccl_.ncclCommGetAsyncError(channel.comm, &state);
      if (Status held = check_nccl(state, "NCCL"); !held.ok()) return end_all_with(held.error());
    }
    for (const auto& [number, flight] : flights_) {
      if (device_.driver().cuEventQuery(flight.done) == CUDA_SUCCESS) continue;
      if (options_.timeout_s <= 0 || now_s() - flight.since_s < options_.timeout_s) break;
      return end_all_with({ErrorKind::rank_failed, "rank " + std::to_string(rank()) + " waits since " +
                                                       std::to_string(static_cast<int>(now_s() - flight.since_s)) +
                                                       " s in " + text_of(flight)});
    }
    return ok_status();
  }

  const Nccl& nccl_;
  Device& device_;
  BackendOptions options_;
  std::vector<Channel> channels_;  // by GroupId
  CUevent arrived_ = nullptr;      // of the compute stream, at a launch
  bool is_ready_ = false;
  uint64_t launched_ = 0;
  std::map<uint64_t, Flight> flights_;
  std::deque<std::string> ended_;
};

}  // namespace

Status require_nccl() {
  auto nccl = load_nccl();
  return nccl.ok() ? ok_status() : Status(nccl.error());
}

Result<std::unique_ptr<Communicator>> make_nccl_communicator(Device& device, Communicator& host,
                                                             const BackendOptions& options) {
  SG_ASSIGN(const Nccl* nccl, load_nccl());
  auto out = std::make_unique<NcclCommunicator>(*nccl, device, host, options);
  SG_TRY(out->start());
  return std::unique_ptr<Communicator>(std::move(out));
}

}  // namespace sg::cuda
