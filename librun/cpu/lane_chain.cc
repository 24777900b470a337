// LaneGraph: runs pointwise nodes for all lanes at once. Consecutive nodes over one shape form one program, whose
// intermediate values are never written.
#include <algorithm>

#include "librun/backend.h"
#include "librun/cpu/lane_graph.h"
#include "librun/cpu/pointwise.h"

namespace sg::cpu {
namespace {

constexpr size_t kMostCalls = 24;  // per program: limited by a device's registers

// Addresses for results that are never written: programs distinguish values by address.
std::byte* nowhere(size_t i) { return reinterpret_cast<std::byte*>((uintptr_t{1} << 62) + (uintptr_t{i} << 52)); }

}  // namespace

bool LaneGraph::can_chain(NodeId n) const {
  const OpInfo* op = graph_.op_info(n);
  return op && op->has(kPointwise) && PointwiseProgram::knows(op->name) && graph_.node(n).result_count == 1 &&
         !op->writes() && !op->has(kRandom) && !is_view(n) && has_lifted(n);
}

// Whether anything but the nodes [first, end) uses the value.
bool LaneGraph::is_needed_outside(ValueId v, size_t first, size_t end) const {
  bool needed = false;
  graph_.for_each_use(v, [&](Use use) {
    needed |= use.user.is_none() || position_[use.user.index] < first || position_[use.user.index] >= end;
  });
  return needed;
}

// A call with its result at `memory`; null = memory is allocated for it.
Result<KernelCall> LaneGraph::chain_call(NodeId n, std::byte* memory) {
  SG_ASSIGN(Tensor t, result_tensor(n, 0));
  LaneValue& out = values_[graph_.node(n).result(0).index];
  out = like_arguments(n, t);
  out.tensor.data = memory ? memory : take_bytes(lifted_bytes(out));
  int rank = t.rank;
  std::vector<LaneValue> table = values_;
  for_values(n, [&](ValueId v) { table[v.index].tensor = all_lanes(values_[v.index], rank); });
  return call_of(n, {all_lanes(out, t.rank)}, table);
}

// The end of the chain that begins with node `first`.
Result<size_t> LaneGraph::find_chain(size_t first) {
  PointwiseProgram trial;
  size_t end = first;
  for (; end < order_.size() && end - first < kMostCalls && can_chain(order_[end]); ++end) {
    SG_ASSIGN(KernelCall call, chain_call(order_[end], nowhere(end - first)));
    auto fits = trial.add(call);
    if (!fits.ok() || !*fits) break;
  }
  return end;
}

// Returns how many nodes from `first` on have been run; 0 = run_node must run it.
Result<size_t> LaneGraph::run_chain(size_t first) {
  SG_ASSIGN(size_t end, find_chain(first));
  if (end == first) return size_t{0};
  PointwiseProgram program;
  for (size_t i = first; i < end; ++i) {
    const bool stored = is_needed_outside(graph_.node(order_[i]).result(0), first, end);
    SG_ASSIGN(KernelCall call, chain_call(order_[i], stored ? nullptr : nowhere(i - first)));
    SG_ASSIGN(bool fits, program.add(call, stored));
    if (!fits) return size_t{0};
  }
  if (Backend* backend = backend_of(*context_)) {
    SG_ASSIGN(bool done, backend->run_once(program));
    return done ? end - first : size_t{0};
  }
  SG_TRY(program.run(*context_->team));
  return end - first;
}

Status LaneGraph::run_pointwise(NodeId n) {
  std::vector<Tensor> results;
  int rank = 0;
  for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) {
    SG_ASSIGN(Tensor t, result_tensor(n, i));
    rank = std::max(rank, t.rank);
    LaneValue& out = values_[graph_.node(n).result(i).index];
    out = lifted(n, t);
    results.push_back(all_lanes(out, t.rank));
  }
  std::vector<LaneValue> table = values_;
  for_values(n, [&](ValueId v) { table[v.index].tensor = all_lanes(values_[v.index], rank); });
  return call_kernel(n, std::move(results), table);
}

}  // namespace sg::cpu
