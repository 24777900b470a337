#include "librun/cpu/lane_graph.h"

#include <algorithm>
#include <string>

#include "libgraph/view_rule.h"
#include "librun/arguments.h"
#include "librun/cpu/kernels.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

// Makes tensors from numbers and types alone: what it is given a tensor for is its type.
bool is_factory(std::string_view op) {
  return std::ranges::any_of(factory_kernels(), [&](const KernelRow& row) { return row.op == op; });
}

// All lanes as one tensor: a leading axis, then axes of size 1 up to `rank`, then the lane's own.
Tensor all_lanes(const LaneValue& v, int64_t lanes, int rank) {
  if (v.lane_step == 0) return v.tensor;
  Tensor out = v.tensor;
  out.rank = rank + 1;
  int shift = rank - v.tensor.rank;
  for (int i = 0; i < rank; ++i) {
    auto to = static_cast<size_t>(i + 1);
    out.shape[to] = i < shift ? 1 : v.tensor.dim(i - shift);
    out.stride[to] = i < shift ? 0 : v.tensor.step(i - shift);
  }
  out.shape[0] = lanes;
  out.stride[0] = v.lane_step;
  return out;
}

Tensor lane_at(const LaneValue& v, int64_t lane) {
  Tensor out = v.tensor;
  if (out.data) out.data += lane * v.lane_step * dtype_bytes(out.dtype);
  return out;
}

std::string refusal_of(const Graph& graph, NodeId n, std::string_view why) {
  return "%" + std::string(graph.label(n)) + ": " + std::string(graph.op_name(n)) + " " + std::string(why) +
         " inside a nested graph";
}
Error unsupported(const Graph& graph, NodeId n, std::string_view why) {
  return Error{ErrorKind::cannot_apply, refusal_of(graph, n, why)};
}

// What no lane can run, whatever it is given; null = none of that.
const char* refusal_of(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  const Node& node = graph.node(n);
  if (!op) return "is not in the op table";
  if (op->writes() || op->has(kRandom) || op->has(kCollective) || op->has(kHigherOrder)) return "cannot run";
  for (uint32_t i = 0; i < node.result_count; ++i)
    if (graph.type(node.result(i)).kind != TypeKind::tensor) return "does not give tensors";
  return op->has(kView) || find_cpu_kernel(op->name) ? nullptr : "has no kernel";
}

ParamValue of_tensor(const Tensor& t) {
  ParamValue p;
  p.kind = ParamValue::Kind::tensor;
  p.tensor = t;
  return p;
}

}  // namespace

std::string LaneGraph::refusal(const Graph& graph) {
  for (NodeId n : graph.nodes())
    if (const char* why = refusal_of(graph, n)) return refusal_of(graph, n, why);
  return {};
}

LaneGraph::LaneGraph(const Program& program, const Graph& graph, Numerics numerics)
    : graph_(graph), numerics_(numerics), bindings_(program), context_{&team_, &kernel_memory_, numerics, &program} {
  values_.resize(graph.value_id_limit());
}

Result<std::vector<LaneValue>> LaneGraph::run(int64_t lanes, std::span<const LaneValue> inputs) {
  if (inputs.size() != graph_.inputs().size())
    return Error{ErrorKind::cannot_apply, "a nested graph of " + std::to_string(graph_.inputs().size()) +
                                              " inputs is given " + std::to_string(inputs.size())};
  lanes_ = lanes;
  values_memory_.reset();
  for (size_t i = 0; i < inputs.size(); ++i) {
    ValueId v = graph_.inputs()[i].value;
    LaneValue value = inputs[i];
    DType recorded = stored_dtype(graph_.type(v).dtype, numerics_);
    if (!fits(value.tensor, graph_.type(v)))
      return Error{ErrorKind::cannot_apply,
                   "input %" + std::string(graph_.name(v)) + " of a nested graph has another shape"};
    if (!value.tensor.is_none() && value.tensor.dtype != recorded) {
      value.wide = is_floating(recorded) && is_floating(value.tensor.dtype);
      if (!value.wide)
        return Error{ErrorKind::cannot_apply,
                     "input %" + std::string(graph_.name(v)) + " of a nested graph has another dtype"};
    }
    values_[v.index] = value;
  }
  for (NodeId n : graph_.nodes()) SG_TRY(run_node(n));
  std::vector<LaneValue> out;
  for (const Output& o : graph_.outputs()) out.push_back(o.value.is_none() ? LaneValue() : values_[o.value.index]);
  return out;
}

// Nodes go by the types of the graph. An axis more has to fit before the tensor's: that of the lanes.
bool LaneGraph::fits(const Tensor& t, const Type& type) const {
  if (type.kind != TypeKind::tensor) return t.is_none();
  bool same = !t.is_none() && t.rank < kMaxRank && type.shape.size() == static_cast<size_t>(t.rank);
  for (size_t i = 0; same && i < type.shape.size(); ++i) {
    auto size = bindings_.value(type.shape[i]);
    same = !size || *size == t.dim(static_cast<int>(i));
  }
  return same;
}

template <class Fn>
void LaneGraph::for_values(NodeId n, const Fn& fn) const {
  for (const Arg& arg : graph_.node(n).args)
    arg.walk([&](const Arg& a) {
      if (a.is(ArgKind::value)) fn(a.as_value());
    });
}

bool LaneGraph::has_lifted(NodeId n) const {
  bool lifted = false;
  for_values(n, [&](ValueId v) { lifted |= values_[v.index].lane_step != 0; });
  return lifted;
}

bool LaneGraph::has_wide(NodeId n) const {
  const OpInfo* op = graph_.op_info(n);
  for (const Arg& arg : graph_.node(n).args)
    if (arg.is(ArgKind::dtype)) return false;  // says what it makes
  bool wide = false;
  for_values(n, [&](ValueId v) { wide |= values_[v.index].wide; });
  return wide && !is_factory(op->name);
}

Status LaneGraph::run_node(NodeId n) {
  const OpInfo* op = graph_.op_info(n);
  const Node& node = graph_.node(n);
  if (const char* why = refusal_of(graph_, n)) return unsupported(graph_, n, why);
  bool is_view = op->has(kView);
  if (op->has(kMayAlias) && node.args[0].is(ArgKind::value)) {
    SizeValues sizes = bindings_.lookup();
    is_view |= result_is_view(graph_, n, node.args[0].as_value(), node.result(0), &sizes) == ViewAnswer::yes;
  }
  if (is_view) return run_view(n);
  if (!has_lifted(n) || is_factory(op->name)) return run_once(n);
  if (op->has(kPointwise)) return run_pointwise(n);
  if (op->name == "aten.index.Tensor") return run_index(n);
  return run_lane_by_lane(n);
}

Result<Tensor> LaneGraph::result_tensor(NodeId n, uint32_t i) const {
  const Type& type = graph_.type(graph_.node(n).result(i));
  Tensor t;
  t.dtype = stored_dtype(type.dtype, numerics_);
  if (has_wide(n) && is_floating(t.dtype) && t.dtype != DType::f64) t.dtype = DType::f32;
  if (!is_runnable(t.dtype) || type.shape.size() + 1 > static_cast<size_t>(kMaxRank))
    return unsupported(graph_, n, "has a type that cannot be");
  t.rank = static_cast<int>(type.shape.size());
  for (size_t axis = 0; axis < type.shape.size(); ++axis) {
    auto size = bindings_.value(type.shape[axis]), stride = bindings_.value(type.stride[axis]);
    if (!size || !stride || *size < 0 || *stride < 0)
      return unsupported(graph_, n, "has a size that nothing gives a value");
    t.shape[axis] = *size;
    t.stride[axis] = *stride;
  }
  return t;
}

// A block of this kind for every lane.
LaneValue LaneGraph::lifted(Tensor t, bool wide) {
  int64_t step = std::max<int64_t>(extent_bytes(t) / dtype_bytes(t.dtype), 1), bytes;
  bool fits = !__builtin_mul_overflow(lanes_, step * dtype_bytes(t.dtype), &bytes);
  t.data = values_memory_.take(fits ? bytes : -1);  // -1: no memory
  return {t, step, wide};
}

Status LaneGraph::call_kernel(NodeId n, std::vector<Tensor> results, const std::vector<LaneValue>& values) {
  ValueTable table;
  table.scalars.resize(values.size());
  for (const LaneValue& v : values) table.tensors.push_back(v.tensor);
  KernelCall call(*graph_.op_info(n), &context_);
  SG_TRY(read_arguments(graph_, n, table, bindings_, &call));
  call.scalars.assign(results.size(), Scalar());
  call.results = std::move(results);
  Status status = find_cpu_kernel(graph_.op_info(n)->name)(call);
  kernel_memory_.reset();
  return status;
}

// One block for all lanes.
Status LaneGraph::run_once(NodeId n) {
  std::vector<Tensor> results;
  for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) {
    SG_ASSIGN(Tensor t, result_tensor(n, i));
    t.data = values_memory_.take(extent_bytes(t));
    results.push_back(t);
    values_[graph_.node(n).result(i).index] = {t, 0, has_wide(n)};
  }
  return call_kernel(n, std::move(results), values_);
}

Status LaneGraph::run_view(NodeId n) {
  const Node& node = graph_.node(n);
  if (node.args.empty() || !node.args[0].is(ArgKind::value) || graph_.op_name(n) == "aten._conj.default")
    return unsupported(graph_, n, "cannot run");
  ValueId source = node.args[0].as_value();
  auto offset_of = [&](ValueId v) {
    return graph_.type(v).offset.is_none() ? std::optional<int64_t>(0) : bindings_.value(graph_.type(v).offset);
  };
  for (uint32_t i = 0; i < node.result_count; ++i) {
    SG_ASSIGN(Tensor t, result_tensor(n, i));
    LaneValue out = values_[source.index];
    auto from = offset_of(source), to = offset_of(node.result(i));
    if (!from || !to || t.dtype != out.tensor.dtype) return unsupported(graph_, n, "cannot run");
    Tensor first = out.tensor;  // held against what the lane has
    t.data = first.data + (*to - *from) * dtype_bytes(t.dtype);
    if (t.elements() > 0 && (t.data < first.data || t.data + extent_bytes(t) > first.data + extent_bytes(first)))
      return unsupported(graph_, n, "reaches beyond its memory");
    out.tensor = t;
    values_[node.result(i).index] = out;
  }
  return ok_status();
}

Status LaneGraph::run_pointwise(NodeId n) {
  std::vector<Tensor> results;
  int rank = 0;
  for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) {
    SG_ASSIGN(Tensor t, result_tensor(n, i));
    rank = std::max(rank, t.rank);
    LaneValue& out = values_[graph_.node(n).result(i).index];
    out = lifted(t, has_wide(n));
    results.push_back(all_lanes(out, lanes_, t.rank));
  }
  std::vector<LaneValue> table = values_;
  for_values(n, [&](ValueId v) { table[v.index].tensor = all_lanes(values_[v.index], lanes_, rank); });
  return call_kernel(n, std::move(results), table);
}

// self[i, j, ...]: where self has a block a lane, the lane's number is one more index in front.
Status LaneGraph::run_index(NodeId n) {
  const Node& node = graph_.node(n);
  if (node.args.size() != 2 || !node.args[0].is(ArgKind::value) || !node.args[1].is(ArgKind::list))
    return run_lane_by_lane(n);
  const LaneValue& self = values_[node.args[0].as_value().index];
  std::vector<Tensor> indices;
  int rank = 0;
  for (const Arg& item : node.args[1].items()) {
    if (!item.is(ArgKind::value) || values_[item.as_value().index].tensor.dtype == DType::boolean)
      return run_lane_by_lane(n);
    rank = std::max(rank, values_[item.as_value().index].tensor.rank);
  }
  if (self.lane_step != 0) {
    int64_t shape[kMaxRank];
    std::fill_n(shape, rank + 1, int64_t{1});
    shape[0] = lanes_;
    Tensor lane = values_memory_.tensor(DType::i64, {shape, static_cast<size_t>(rank + 1)});
    for (int64_t i = 0; i < lanes_; ++i) lane.as<int64_t>()[i] = i;
    indices.push_back(lane);
  }
  for (const Arg& item : node.args[1].items())
    indices.push_back(all_lanes(values_[item.as_value().index], lanes_, rank));
  SG_ASSIGN(Tensor t, result_tensor(n, 0));
  LaneValue& out = values_[node.result(0).index];
  out = lifted(t, self.wide);
  KernelCall call(*graph_.op_info(n), &context_);
  call.params()[static_cast<size_t>(call.op().param_index("self"))] =
      of_tensor(all_lanes(self, lanes_, self.tensor.rank));
  ParamValue list;
  list.kind = ParamValue::Kind::list;
  for (const Tensor& index : indices) list.items.push_back(of_tensor(index));
  list.tensors = std::move(indices);
  call.params()[static_cast<size_t>(call.op().param_index("indices"))] = std::move(list);
  call.results = {all_lanes(out, lanes_, t.rank)};
  call.scalars.resize(1);
  Status status = find_cpu_kernel(call.op().name)(call);
  kernel_memory_.reset();
  return status;
}

Status LaneGraph::run_lane_by_lane(NodeId n) {
  const Node& node = graph_.node(n);
  for (uint32_t i = 0; i < node.result_count; ++i) {
    SG_ASSIGN(Tensor t, result_tensor(n, i));
    values_[node.result(i).index] = lifted(t, has_wide(n));
  }
  std::vector<LaneValue> table = values_;
  for (int64_t lane = 0; lane < lanes_; ++lane) {
    std::vector<Tensor> results;
    for (uint32_t i = 0; i < node.result_count; ++i) results.push_back(lane_at(values_[node.result(i).index], lane));
    for_values(n, [&](ValueId v) { table[v.index].tensor = lane_at(values_[v.index], lane); });
    SG_TRY(call_kernel(n, std::move(results), table));
  }
  return ok_status();
}

}  // namespace sg::cpu
