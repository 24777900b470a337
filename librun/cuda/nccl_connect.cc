#include "librun/cuda/nccl_connect.h"

#include "libgraph/facts/collective_calls.h"
#include "libgraph/op.h"

namespace sg::cuda {
namespace {

// An op that is not known here is taken for an exchange.
bool is_exchange(const CollectiveFacts& call, bool deterministic) {
  if (call.kind.starts_with("all_gather") || call.kind == "broadcast") return false;
  if (!call.kind.starts_with("all_reduce") && !call.kind.starts_with("reduce_scatter")) return true;
  const Result<Reduction> reduction = parse_reduction(call.reduce_op);
  return !reduction.ok() || reduces_in_order(reduction.value().kind, call.dtype, deterministic);
}

void note_exchanges(const Graph& graph, bool deterministic, std::vector<bool>* out) {
  for (NodeId n : graph.nodes()) {
    const OpInfo* op = graph.op_info(n);
    if (!op || !op->has(kCollective)) continue;
    const Arg* group = argument(graph.node(n), *op, graph.pool().strings, "group_name");
    if (!group || !group->is(ArgKind::group) || group->as_group().index >= out->size()) continue;
    CollectiveEvent event;
    event.graph = &graph;
    event.node = n;
    if (is_exchange(collective_facts(graph.pool(), event), deterministic)) (*out)[group->as_group().index] = true;
  }
}

}  // namespace

std::vector<bool> exchanging_groups(const Job& job, bool deterministic) {
  std::vector<bool> out(job.groups.size());
  for (const auto& program : job.programs) {
    note_exchanges(program->graph, deterministic, &out);
    for (const auto& nested : program->nested) note_exchanges(nested->graph, deterministic, &out);
  }
  return out;
}

Status connect_members(const NcclRank& by, const RankGroup& members, const NcclChannel& channel, std::byte* bytes) {
  const auto stream = reinterpret_cast<cudaStream_t>(channel.stream);
  const size_t count = members.ranks.size();
  auto check_nccl = [&](ncclResult_t code, const char* what) { return by.nccl.check(code, what, by.rank); };
  auto exchange_bytes = [&]() -> Status {
    for (size_t i = 0; i < count; ++i) {
      if (i == members.position) continue;
      const int peer = static_cast<int>(i);
      SG_TRY(check_nccl(by.nccl.ncclSend(bytes + i, 1, ncclInt8, peer, channel.comm, stream), "ncclSend"));
      SG_TRY(check_nccl(by.nccl.ncclRecv(bytes + count + i, 1, ncclInt8, peer, channel.comm, stream), "ncclRecv"));
    }
    return ok_status();
  };
  SG_TRY(check_nccl(by.nccl.ncclGroupStart(), "ncclGroupStart"));
  Status added = exchange_bytes();
  const ncclResult_t ended = by.nccl.ncclGroupEnd();  // in any case
  SG_TRY(std::move(added));
  SG_TRY(check_nccl(ended, "ncclGroupEnd"));
  return ended == ncclInProgress ? by.issued(channel.comm, "ncclGroupEnd") : ok_status();
}

}  // namespace sg::cuda
