// LaneGraph: indexing with indices that differ between lanes.
#include <algorithm>
#include <array>

#include "librun/cpu/inner_call.h"
#include "librun/cpu/lane_graph.h"

namespace sg::cpu {
namespace {

ParamValue of_tensors(std::vector<Tensor> list) {
  ParamValue p;
  p.kind = ParamValue::Kind::list;
  for (const Tensor& t : list) p.items.push_back(param_of(t));
  p.tensors = std::move(list);
  return p;
}

Tensor with_leading_axis(const Tensor& t, int64_t size, int64_t step) {
  Tensor out = t;
  for (int axis = out.rank++; axis > 0; --axis) {
    const auto to = static_cast<size_t>(axis);
    out.shape[to] = out.shape[to - 1];
    out.stride[to] = out.stride[to - 1];
  }
  out.shape[0] = size;
  out.stride[0] = step;
  return out;
}

}  // namespace

bool LaneGraph::has_plain_indices(const Graph& graph, NodeId n) {
  const std::vector<Arg>& args = graph.node(n).args;
  if (args.size() != 2 || !args[0].is(ArgKind::value) || !args[1].is(ArgKind::list)) return false;
  return std::ranges::all_of(args[1].items(), [&](const Arg& item) {
    return item.is(ArgKind::value) && graph.type(item.as_value()).dtype != DType::boolean;
  });
}

// self[i, j, ...]: if self is lifted along a lane axis, the lane's position becomes an additional leading index.
Status LaneGraph::run_index(NodeId n) {
  const Node& node = graph_.node(n);
  const LaneValue& self = values_[node.args[0].as_value().index];
  std::vector<Tensor> indices;
  int rank = 0;
  for (const Arg& item : node.args[1].items()) rank = std::max(rank, values_[item.as_value().index].tensor.rank);
  Tensor from = self.tensor;  // including the axes that it is lifted along
  for (size_t axis = kLaneAxes; axis-- > 0;) {
    if (self.step[axis] == 0) continue;
    LaneValue place;
    SG_ASSIGN(place.tensor, numbers(lanes_[axis]));
    place.tensor.rank = 0;
    place.step[axis] = 1;
    indices.insert(indices.begin(), all_lanes(place, rank));
    from = with_leading_axis(from, lanes_[axis], self.step[axis]);
  }
  for (const Arg& item : node.args[1].items()) indices.push_back(all_lanes(values_[item.as_value().index], rank));
  SG_ASSIGN(Tensor t, result_tensor(n, 0));
  LaneValue out = lifted(n, t);
  out.wide = self.wide;
  KernelCall call(*graph_.op_info(n), context_);
  auto param = [&](std::string_view name) -> ParamValue& {
    return call.params()[static_cast<size_t>(call.op().param_index(name))];
  };
  param("self") = param_of(from);
  param("indices") = of_tensors(std::move(indices));
  call.results = {all_lanes(out, t.rank)};
  call.scalars.resize(1);
  values_[node.result(0).index] = out;
  return run_kernel(call);
}

Result<Tensor> LaneGraph::numbers(int64_t count) {
  Tensor t = make_tensor(take_bytes(count * dtype_bytes(DType::i64)), DType::i64, std::array{count});
  KernelCall call(*find_op("aten.arange.default"), context_);
  call.params()[static_cast<size_t>(call.op().param_index("end"))] = param_of(Scalar::integer(count));
  call.results = {t};
  call.scalars.resize(1);
  SG_TRY(run_kernel(call));
  return t;
}

}  // namespace sg::cpu
