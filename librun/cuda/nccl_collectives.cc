// One collective as NCCL calls on one stream: NCCL's own collectives, or, where the order of a reduction is fixed, an
// exchange of parts and their sum on the GPU.
#include "librun/cuda/nccl_collectives.h"

#include <algorithm>
#include <array>

#include "librun/cuda/kernels/slots.h"

namespace sg::cuda {
namespace {

SlotReduce slot_reduction(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::sum: return SlotReduce::sum;
    case ReduceKind::average: return SlotReduce::average;
    case ReduceKind::product: return SlotReduce::product;
    case ReduceKind::minimum: return SlotReduce::minimum;
    case ReduceKind::maximum: return SlotReduce::maximum;
    case ReduceKind::premul_sum: return SlotReduce::premul_sum;
    case ReduceKind::bit_and: return SlotReduce::bit_and;
    case ReduceKind::bit_or: return SlotReduce::bit_or;
    case ReduceKind::bit_xor: return SlotReduce::bit_xor;
  }
  return SlotReduce::sum;
}

class Issue {
 public:
  Issue(const NcclRank& by, const CollectiveCall& call, const RankGroup& members, const NcclChannel& channel,
        std::vector<std::byte*>* staging)
      : by_(by),
        nccl_(by.nccl),
        call_(call),
        in_(call.input),
        out_(call.output),
        members_(members),
        channel_(channel),
        stream_(reinterpret_cast<cudaStream_t>(channel.stream)),
        n_(static_cast<int64_t>(members.ranks.size())),
        staging_(staging) {}

  Status run() {
    switch (call_.kind) {
      case CollectiveKind::barrier: return ok_status();
      case CollectiveKind::all_gather: return all_gather(in_.data, out_.data, in_.bytes());
      case CollectiveKind::broadcast: return broadcast();
      case CollectiveKind::all_to_all: return exchange_slots();
      case CollectiveKind::gather:
      case CollectiveKind::scatter: return root_slots();
      case CollectiveKind::reduce_scatter:
      case CollectiveKind::all_reduce: return reduce();
    }
    return ok_status();
  }

 private:
  Status check_nccl(ncclResult_t code, const char* what) const { return nccl_.check(code, what, by_.rank); }
  // For a call outside a group, or the end of a group: its work is on the stream when this returns.
  Status check_issued(ncclResult_t code, const char* what) const {
    SG_TRY(check_nccl(code, what));
    return code == ncclInProgress ? by_.issued(channel_.comm, what) : ok_status();
  }
  bool is_all_reduce() const { return call_.kind == CollectiveKind::all_reduce; }

  Status all_gather(const std::byte* from, std::byte* to, int64_t bytes) {
    return check_issued(nccl_.ncclAllGather(from, to, static_cast<size_t>(bytes), ncclInt8, channel_.comm, stream_),
                        "ncclAllGather");
  }

  Status broadcast() {
    const std::byte* from = members_.position == call_.root ? in_.data : out_.data;
    return check_issued(nccl_.ncclBroadcast(from, out_.data, static_cast<size_t>(out_.bytes()), ncclInt8,
                                            static_cast<int>(call_.root), channel_.comm, stream_),
                        "ncclBroadcast");
  }

  // --- sends and receives ---

  // Runs fn's sends and receives as one group.
  template <class Fn>
  Status grouped(const Fn& fn) {
    SG_TRY(check_nccl(nccl_.ncclGroupStart(), "ncclGroupStart"));
    Status added = fn();
    Status ended = check_issued(nccl_.ncclGroupEnd(), "ncclGroupEnd");
    return added.ok() ? std::move(ended) : std::move(added);
  }
  Status send(const std::byte* from, int64_t bytes, int64_t to) {
    if (bytes == 0) return ok_status();
    return check_nccl(
        nccl_.ncclSend(from, static_cast<size_t>(bytes), ncclInt8, static_cast<int>(to), channel_.comm, stream_),
        "ncclSend");
  }
  Status receive(std::byte* to, int64_t bytes, int64_t from) {
    if (bytes == 0) return ok_status();
    return check_nccl(
        nccl_.ncclRecv(to, static_cast<size_t>(bytes), ncclInt8, static_cast<int>(from), channel_.comm, stream_),
        "ncclRecv");
  }

  Status exchange_slots() {
    const int64_t unit = dtype_bytes(out_.dtype);
    auto slot = [&](const std::vector<int64_t>& splits, const Tensor& t, int64_t i) {
      return splits.empty() ? t.bytes() / n_ : splits[static_cast<size_t>(i)] * unit;
    };
    return grouped([&]() -> Status {
      const std::byte* from = in_.data;
      std::byte* to = out_.data;
      for (int64_t i = 0; i < n_; ++i) {
        SG_TRY(send(from, slot(call_.send, in_, i), i));
        SG_TRY(receive(to, slot(call_.receive, out_, i), i));
        from += slot(call_.send, in_, i);
        to += slot(call_.receive, out_, i);
      }
      return ok_status();
    });
  }

  Status root_slots() {
    const bool is_root = members_.position == call_.root, gathers = call_.kind == CollectiveKind::gather;
    return grouped([&]() -> Status {
      if (gathers) SG_TRY(send(in_.data, in_.bytes(), call_.root));
      else SG_TRY(receive(out_.data, out_.bytes(), call_.root));
      for (int64_t i = 0; is_root && i < n_; ++i) {
        const int64_t bytes = (gathers ? out_ : in_).bytes() / n_;
        if (gathers) SG_TRY(receive(out_.data + i * bytes, bytes, i));
        else SG_TRY(send(in_.data + i * bytes, bytes, i));
      }
      return ok_status();
    });
  }

  // --- sums ---

  Status reduce() {
    if (reduces_in_order(call_.reduction.kind, out_.dtype, by_.deterministic)) return reduce_in_order();
    const auto type = nccl_type(out_.dtype);
    const auto op = nccl_reduction(call_.reduction.kind, out_.dtype);
    const auto count = static_cast<size_t>(out_.elements() * (is_complex(out_.dtype) ? 2 : 1));
    if (is_all_reduce())
      return check_issued(nccl_.ncclAllReduce(in_.data, out_.data, count, *type, *op, channel_.comm, stream_),
                          "ncclAllReduce");
    return check_issued(nccl_.ncclReduceScatter(in_.data, out_.data, count, *type, *op, channel_.comm, stream_),
                        "ncclReduceScatter");
  }

  std::byte* stage(int64_t bytes) {
    std::byte* memory = by_.device.memory().take(bytes);
    if (memory) staging_->push_back(memory);
    return memory;
  }

  // Every member receives its slot of all inputs, reduces it in member order, and for an all-reduce sends the result to
  // all members: as many bytes on the wire as a ring.
  Status reduce_in_order() {
    const int64_t unit = dtype_bytes(out_.dtype), total = in_.elements();
    const int64_t slot = is_all_reduce() ? (total + n_ - 1) / n_ : out_.elements();
    if (total == 0) return ok_status();
    std::byte* received = stage(slot * n_ * unit);
    std::byte* sum = is_all_reduce() ? stage(slot * n_ * unit) : out_.data;
    if (!received || !sum)
      return Error{ErrorKind::missing, "the GPU has no memory for the " + std::to_string(slot * n_ * unit) +
                                           " bytes in which " + std::string(call_.label) +
                                           " is reduced in a fixed order"};
    auto slot_bytes = [&](int64_t i) { return std::clamp<int64_t>(total - i * slot, 0, slot) * unit; };
    const int64_t mine = slot_bytes(members_.position) / unit;
    SG_TRY(grouped([&]() -> Status {
      for (int64_t i = 0; i < n_; ++i) {
        SG_TRY(send(in_.data + i * slot * unit, slot_bytes(i), i));
        SG_TRY(receive(received + i * mine * unit, mine * unit, i));
      }
      return ok_status();
    }));
    std::byte* own = is_all_reduce() ? sum + static_cast<int64_t>(members_.position) * slot * unit : sum;
    add_slots(received, own, mine);
    SG_TRY(by_.device.noted());
    if (!is_all_reduce()) return ok_status();
    SG_TRY(all_gather(own, sum, slot * unit));
    const Driver& driver = by_.device.driver();
    return check(
        driver,
        driver.cuMemcpyDtoDAsync_v2(reinterpret_cast<CUdeviceptr>(out_.data), reinterpret_cast<CUdeviceptr>(sum),
                                    static_cast<size_t>(total * unit), channel_.stream),
        "cuMemcpyDtoDAsync");
  }

  void add_slots(std::byte* slots, std::byte* to, int64_t count) {
    DType type = out_.dtype;
    const bool pairs = is_complex(type);  // complex sums are sums of their parts
    if (pairs) type = type == DType::c64 ? DType::f32 : DType::f64, count *= 2;
    SlotArgs args;
    args.slots = Device::view(make_tensor(slots, type, std::array{n_, count}));
    args.to = Device::view(make_tensor(to, type, std::array{count}));
    args.kind = slot_reduction(call_.reduction.kind);
    args.factor = call_.reduction.factor;
    by_.device.launch_on(channel_.stream, "reduce_slots", blocks_for(count), args);
  }

  const NcclRank& by_;
  const Nccl& nccl_;
  const CollectiveCall& call_;
  const Tensor &in_, &out_;
  const RankGroup& members_;
  const NcclChannel& channel_;
  cudaStream_t stream_;
  int64_t n_;  // number of members
  std::vector<std::byte*>* staging_;
};

}  // namespace

bool reduces_in_order(ReduceKind kind, DType dtype, bool deterministic) {
  return deterministic || dtype == DType::boolean || !nccl_type(dtype) || !nccl_reduction(kind, dtype);
}

Status issue_collective(const NcclRank& by, const CollectiveCall& call, const RankGroup& members,
                        const NcclChannel& channel, std::vector<std::byte*>* staging) {
  return Issue(by, call, members, channel, staging).run();
}

}  // namespace sg::cuda
