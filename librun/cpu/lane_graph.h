// LaneGraph: a nested graph over single numbers (a score_mod, a mask_mod), run for many of them at once.
//
// Lanes extend along up to three axes: positions in a block of scores, or heads, queries and keys. A value is constant
// along an axis of lanes, or has a separate block for each position along it: it is then "lifted" along that axis.
// Nodes are evaluated in order through the kernels of the CPU, or of the backend that runs the call:
//   - a node without lifted arguments runs as it is, and so do factories, which read no values;
//   - pointwise ops run on lifted tensors, broadcast: consecutive ones over one shape as one program, whose values stay
//     in registers unless they are needed elsewhere (lane_chain.cc);
//   - indexing by lifted indices gathers for all lanes;
//   - views of lifted values are views of every lane's block;
//   - anything else runs lane by lane: slow, but correct for any op. Not on a backend.
// A result is lifted along the axes that its arguments are lifted along: a value that depends only on the query is
// computed once per query.
//
// Precision  Score graphs are traced with a half-precision type, while attention computes scores in f32: a value
//            derived from such a wider input stays wide until the graph converts it.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "libgraph/job.h"
#include "librun/execute/bindings.h"
#include "librun/kernel.h"

namespace sg::cpu {

inline constexpr size_t kLaneAxes = 3;
using PerLaneAxis = std::array<int64_t, kLaneAxes>;

struct LaneValue {
  Tensor tensor;       // of one lane, without the lane axes; dtype none = absent
  PerLaneAxis step{};  // elements between adjacent lanes' blocks along an axis; 0 = the same for all
  bool wide = false;   // in a wider type than recorded in the graph
  bool is_lifted() const { return step != PerLaneAxis(); }
};

class LaneGraph {
 public:
  // `graph` must outlive this object. Each thread uses its own.
  LaneGraph(const Program& program, const Graph& graph, Numerics numerics);
  // Uses the kernels and memory of the backend that `context` belongs to; results stay valid until the call ends.
  LaneGraph(const Graph& graph, KernelContext& context);

  // Why `graph` cannot run like this, as far as known before a run; empty = no reason known.
  static std::string refusal(const Graph& graph);
  // Which values are lifted, by ValueId, if the first `lifted` inputs are.
  static std::vector<bool> lifted_values(const Graph& graph, size_t lifted);
  // Whether a node with lifted results runs for all lanes at once, as far as known before a run.
  static bool runs_together(const Graph& graph, NodeId n);

  // Runs for the positions of a block of this size; inputs by graph input position. Results, by output position, are
  // valid until the next run.
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

  Result<Tensor> result_tensor(NodeId n, uint32_t i) const;  // of one lane, without memory
  Result<KernelCall> call_of(NodeId n, std::vector<Tensor> results, const std::vector<LaneValue>& values);
  Status run_kernel(KernelCall& call);
  Status call_kernel(NodeId n, std::vector<Tensor> results, const std::vector<LaneValue>& values);
  std::byte* take_bytes(int64_t bytes);  // -1: too large
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
  LaneValue like_arguments(NodeId n, Tensor t) const;  // lifted like the arguments; without memory
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
  std::vector<size_t> position_;  // index into order_, by NodeId
};

}  // namespace sg::cpu
