// LaneGraph: a nested graph over single numbers (a score_mod, a mask_mod), run for many of them at once.
//
// Lanes lie along up to three axes: places in a block of scores, or heads, queries and keys. A value is the same along
// an axis of lanes, or has a block of its own for each place of it: "lifted" along the axis. Nodes are evaluated in
// order through the kernels of the processor, or of the backend that the call runs on:
//   - a node without lifted arguments runs as it is, and so do factories, which read no values;
//   - pointwise ops run on lifted tensors, broadcast: neighbours over one shape as one program, whose values stay in
//     registers where nothing else needs them (lane_chain.cc);
//   - indexing by lifted indices gathers for all lanes;
//   - views of lifted values are views of every lane's block;
//   - whatever else runs lane by lane: slow, and right for any op. Not on a backend.
// A result is lifted along the axes that its arguments are lifted along: what hangs on the query alone is computed once
// a query.
//
// Precision  Score graphs are traced with a half type where attention computes scores in f32: a value that comes from
//            such a wider input stays wide until the graph says otherwise.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "libgraph/job.h"
#include "librun/bindings.h"
#include "librun/kernel.h"

namespace sg::cpu {

inline constexpr size_t kLaneAxes = 3;
using PerLaneAxis = std::array<int64_t, kLaneAxes>;

struct LaneValue {
  Tensor tensor;       // of one lane, without the axes of lanes; dtype none = not there
  PerLaneAxis step{};  // elements from one lane's block to the next along an axis; 0 = the same for all
  bool wide = false;   // in a wider type than the graph records
  bool is_lifted() const { return step != PerLaneAxis(); }
};

class LaneGraph {
 public:
  // `graph` outlives this. Each thread has its own.
  LaneGraph(const Program& program, const Graph& graph, Numerics numerics);
  // By the kernels and in the memory of the backend that `context` is of; which has the results until the call ends.
  LaneGraph(const Graph& graph, KernelContext& context);

  // Why `graph` cannot run so, as far as that is known before a run; empty = nothing is known.
  static std::string refusal(const Graph& graph);
  // Which values are lifted, by ValueId, if the first `lifted` inputs are.
  static std::vector<bool> lifted_values(const Graph& graph, size_t lifted);
  // Whether a node that gives lifted values runs for all lanes at once, as far as that is known before a run.
  static bool runs_together(const Graph& graph, NodeId n);

  // Runs for the places of a block of this size; inputs by graph input position. Results, by output position, hold
  // until the next run.
  Result<std::vector<LaneValue>> run(PerLaneAxis lanes, std::span<const LaneValue> inputs);

 private:
  // lane_graph.cc
  void list_nodes();
  Status take_input(size_t i, LaneValue value);
  Status run_node(NodeId n);
  Status run_once(NodeId n);
  Status run_view(NodeId n);
  Status run_lane_by_lane(NodeId n);
  bool is_view(NodeId n) const;

  // lane_index.cc
  Status run_index(NodeId n);
  Result<Tensor> numbers(int64_t count);  // 0, 1, 2, ...
  static bool has_plain_indices(const Graph& graph, NodeId n);

  // lane_chain.cc
  Status run_pointwise(NodeId n);
  Result<size_t> run_chain(size_t first);
  Result<size_t> find_chain(size_t first);
  Result<KernelCall> chain_call(NodeId n, std::byte* memory);
  bool can_chain(NodeId n) const;
  bool is_needed_outside(ValueId v, size_t first, size_t end) const;

  Result<Tensor> result_tensor(NodeId n, uint32_t i) const;  // of one lane, no memory
  Result<KernelCall> call_of(NodeId n, std::vector<Tensor> results, const std::vector<LaneValue>& values);
  Status run_kernel(KernelCall& call);
  Status call_kernel(NodeId n, std::vector<Tensor> results, const std::vector<LaneValue>& values);
  std::byte* take_bytes(int64_t bytes);  // -1: that is more than there can be
  bool fits(const Tensor& t, const Type& type) const;
  bool has_lifted(NodeId n) const;
  bool has_wide(NodeId n) const;
  template <class Fn>  // fn(ValueId) for each value among the arguments
  void for_values(NodeId n, const Fn& fn) const {
    for (const Arg& arg : graph_.node(n).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::value)) fn(a.as_value());
      });
  }
  LaneValue like_arguments(NodeId n, Tensor t) const;  // lifted as they are; no memory
  int64_t lifted_bytes(const LaneValue& v) const;
  LaneValue lifted(NodeId n, Tensor t);
  Tensor all_lanes(const LaneValue& v, int rank) const;

  const Graph& graph_;
  Numerics numerics_;
  Bindings bindings_;
  ThreadTeam team_{1};
  Scratch values_memory_, kernel_memory_;
  KernelContext own_context_;
  KernelContext* context_;  // of the calls
  PerLaneAxis lanes_{};
  std::vector<LaneValue> values_;  // by ValueId
  std::vector<NodeId> order_;
  std::vector<size_t> position_;  // in it, by NodeId
};

}  // namespace sg::cpu
