// LaneGraph: a nested graph over single numbers (a score_mod, a mask_mod), run for many of them at once.
//
// A value is the same for all lanes, or has one block a lane: "lifted", with a leading axis. Nodes are evaluated one by
// one through the ordinary kernels:
//   - a node without lifted arguments runs as it is, and so do factories, which read no values;
//   - pointwise ops run on the lifted tensors, broadcast;
//   - indexing by lifted indices gathers for all lanes;
//   - views of lifted values are views of every lane's block;
//   - whatever else runs lane by lane: slow, and right for any op.
//
// Precision  Score graphs are traced with a half type where attention computes scores in f32: a value that comes from
//            such a wider input stays wide until the graph says otherwise.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "libgraph/job.h"
#include "librun/bindings.h"
#include "librun/kernel.h"

namespace sg::cpu {

struct LaneValue {
  Tensor tensor;          // of one lane, without the leading axis; dtype none = not there
  int64_t lane_step = 0;  // elements from one lane's block to the next; 0 = the same for all
  bool wide = false;      // in a wider type than the graph records
};

class LaneGraph {
 public:
  // `graph` outlives this. Each thread has its own.
  LaneGraph(const Program& program, const Graph& graph, Numerics numerics);

  // Why `graph` cannot run so, as far as that is known before a run; empty = nothing is known.
  static std::string refusal(const Graph& graph);

  // Runs `lanes` lanes; inputs by graph input position. Results, by output position, hold until the next run.
  Result<std::vector<LaneValue>> run(int64_t lanes, std::span<const LaneValue> inputs);

 private:
  Status run_node(NodeId n);
  Status run_once(NodeId n);
  Status run_view(NodeId n);
  Status run_pointwise(NodeId n);
  Status run_index(NodeId n);
  Status run_lane_by_lane(NodeId n);

  Result<Tensor> result_tensor(NodeId n, uint32_t i) const;  // of one lane, no memory
  Status call_kernel(NodeId n, std::vector<Tensor> results, const std::vector<LaneValue>& values);
  std::vector<LaneValue> arguments(NodeId n) const;  // the tensors among them, by ValueId
  bool fits(const Tensor& t, const Type& type) const;
  bool has_lifted(NodeId n) const;
  bool has_wide(NodeId n) const;
  template <class Fn>
  void for_values(NodeId n, const Fn& fn) const;
  LaneValue lifted(Tensor t, bool wide);

  const Graph& graph_;
  Numerics numerics_;
  Bindings bindings_;
  ThreadTeam team_{1};
  Scratch values_memory_, kernel_memory_;
  KernelContext context_;
  int64_t lanes_ = 0;
  std::vector<LaneValue> values_;  // by ValueId
};

}  // namespace sg::cpu
