#include "librun/cpu/lane_graph.h"

#include <algorithm>
#include <string>

#include "libgraph/facts/view_rule.h"
#include "librun/backend.h"
#include "librun/cpu/kernels.h"
#include "librun/element.h"
#include "librun/execute/arguments.h"

namespace sg::cpu {
namespace {

// Whether the op creates tensors from numbers and types alone; it only uses the type of a tensor argument.
bool is_factory(std::string_view op) {
  return std::ranges::any_of(factory_kernels(), [&](const KernelRow& row) { return row.op == op; });
}

constexpr int64_t kTooMany = INT64_MAX;  // more elements than any memory holds

// The block of lane number `lane`, in row-major order.
Tensor lane_at(const LaneValue& v, const PerLaneAxis& lanes, int64_t lane) {
  Tensor out = v.tensor;
  int64_t offset = 0;
  for (size_t axis = kLaneAxes; axis-- > 0; lane /= lanes[axis]) offset += lane % lanes[axis] * v.step[axis];
  if (out.data) out.data += offset * dtype_bytes(out.dtype);
  return out;
}

std::string refusal_of(const Graph& graph, NodeId n, std::string_view why) {
  return "%" + std::string(graph.label(n)) + ": " + std::string(graph.op_name(n)) + " " + std::string(why) +
         " inside a nested graph";
}
Error unsupported(const Graph& graph, NodeId n, std::string_view why) {
  return Error{ErrorKind::cannot_apply, refusal_of(graph, n, why)};
}

// Why no lane can run the node, regardless of its arguments; null = no such reason.
const char* refusal_of(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  const Node& node = graph.node(n);
  if (!op) return "is not in the op table";
  if (op->writes() || op->has(kRandom) || op->has(kCollective) || op->has(kHigherOrder)) return "cannot run";
  for (uint32_t i = 0; i < node.result_count; ++i)
    if (graph.type(node.result(i)).kind != TypeKind::tensor) return "does not give tensors";
  return op->has(kView) || find_cpu_kernel(op->name) ? nullptr : "has no kernel";
}

}  // namespace

std::string LaneGraph::refusal(const Graph& graph) {
  for (NodeId n : graph.nodes())
    if (const char* why = refusal_of(graph, n)) return refusal_of(graph, n, why);
  return {};
}

std::vector<bool> LaneGraph::lifted_values(const Graph& graph, size_t lifted) {
  std::vector<bool> out(graph.value_id_limit());
  for (size_t i = 0; i < std::min(lifted, graph.inputs().size()); ++i) out[graph.inputs()[i].value.index] = true;
  for (NodeId n : graph.nodes()) {
    bool lifts = false;
    for (const Arg& arg : graph.node(n).args)
      arg.walk([&](const Arg& a) { lifts |= a.is(ArgKind::value) && out[a.as_value().index]; });
    lifts &= !is_factory(graph.op_name(n));
    for (uint32_t i = 0; i < graph.node(n).result_count; ++i) out[graph.node(n).result(i).index] = lifts;
  }
  return out;
}

bool LaneGraph::runs_together(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  return op &&
         (op->has(kView) || op->has(kPointwise) || (op->name == "aten.index.Tensor" && has_plain_indices(graph, n)));
}

LaneGraph::LaneGraph(const Program& program, const Graph& graph, Numerics numerics)
    : graph_(graph),
      numerics_(numerics),
      bindings_(program),
      own_context_{&team_, &kernel_memory_, numerics, &program},
      context_(&own_context_) {
  list_nodes();
}

LaneGraph::LaneGraph(const Graph& graph, KernelContext& context)
    : graph_(graph), numerics_(context.numerics), bindings_(*context.program), context_(&context) {
  list_nodes();
}

void LaneGraph::list_nodes() {
  values_.resize(graph_.value_id_limit());
  position_.resize(graph_.node_id_limit());
  for (NodeId n : graph_.nodes()) {
    position_[n.index] = order_.size();
    order_.push_back(n);
  }
}

Result<std::vector<LaneValue>> LaneGraph::run(PerLaneAxis lanes, std::span<const LaneValue> inputs) {
  if (inputs.size() != graph_.inputs().size())
    return Error{ErrorKind::cannot_apply, "a nested graph of " + std::to_string(graph_.inputs().size()) +
                                              " inputs is given " + std::to_string(inputs.size())};
  lanes_ = lanes;
  values_memory_.reset();
  for (size_t i = 0; i < inputs.size(); ++i) SG_TRY(take_input(i, inputs[i]));
  for (size_t i = 0; i < order_.size();) {
    SG_ASSIGN(size_t chained, run_chain(i));
    if (chained == 0) SG_TRY(run_node(order_[i]));
    i += std::max<size_t>(chained, 1);
  }
  std::vector<LaneValue> out;
  for (const Output& o : graph_.outputs()) out.push_back(o.value.is_none() ? LaneValue() : values_[o.value.index]);
  return out;
}

Status LaneGraph::take_input(size_t i, LaneValue value) {
  const ValueId v = graph_.inputs()[i].value;
  const DType recorded = stored_dtype(graph_.type(v).dtype, numerics_);
  auto wrong = [&](std::string_view what) {
    return Error{ErrorKind::cannot_apply,
                 "input %" + std::string(graph_.name(v)) + " of a nested graph has another " + std::string(what)};
  };
  if (!fits(value.tensor, graph_.type(v))) return wrong("shape");
  if (!value.tensor.is_none() && value.tensor.dtype != recorded) {
    value.wide = is_floating(recorded) && is_floating(value.tensor.dtype);
    if (!value.wide) return wrong("dtype");
  }
  values_[v.index] = value;
  return ok_status();
}

// Checks a lane's tensor against the graph's type; the lane axes must fit in front of the tensor's.
bool LaneGraph::fits(const Tensor& t, const Type& type) const {
  if (type.kind != TypeKind::tensor) return t.is_none();
  const auto rank = static_cast<size_t>(t.rank);
  bool same = !t.is_none() && rank + kLaneAxes <= kMaxRank && type.shape.size() == rank;
  for (size_t i = 0; same && i < type.shape.size(); ++i) {
    auto size = bindings_.value(type.shape[i]);
    same = !size || *size == t.dim(static_cast<int>(i));
  }
  return same;
}

bool LaneGraph::has_lifted(NodeId n) const {
  bool lifted = false;
  for_values(n, [&](ValueId v) { lifted |= values_[v.index].is_lifted(); });
  return lifted;
}

bool LaneGraph::has_wide(NodeId n) const {
  const OpInfo* op = graph_.op_info(n);
  for (const Arg& arg : graph_.node(n).args)
    if (arg.is(ArgKind::dtype)) return false;  // determines the result type
  bool wide = false;
  for_values(n, [&](ValueId v) { wide |= values_[v.index].wide; });
  return wide && !is_factory(op->name);
}

bool LaneGraph::is_view(NodeId n) const {
  const OpInfo* op = graph_.op_info(n);
  const Node& node = graph_.node(n);
  if (op->has(kView)) return true;
  if (!op->has(kMayAlias) || !node.args[0].is(ArgKind::value)) return false;
  SizeValues sizes = bindings_.lookup();
  return result_is_view(graph_, n, node.args[0].as_value(), node.result(0), &sizes) == ViewAnswer::yes;
}

Status LaneGraph::run_node(NodeId n) {
  if (const char* why = refusal_of(graph_, n)) return unsupported(graph_, n, why);
  const OpInfo* op = graph_.op_info(n);
  if (is_view(n)) return run_view(n);
  if (!has_lifted(n) || is_factory(op->name)) return run_once(n);
  if (op->has(kPointwise)) return run_pointwise(n);
  if (op->name == "aten.index.Tensor" && has_plain_indices(graph_, n)) return run_index(n);
  return run_lane_by_lane(n);
}

Result<Tensor> LaneGraph::result_tensor(NodeId n, uint32_t i) const {
  const Type& type = graph_.type(graph_.node(n).result(i));
  Tensor t;
  t.dtype = stored_dtype(type.dtype, numerics_);
  if (has_wide(n) && is_floating(t.dtype) && t.dtype != DType::f64) t.dtype = DType::f32;
  if (!is_runnable(t.dtype) || type.shape.size() + kLaneAxes > static_cast<size_t>(kMaxRank))
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

// All lanes as one tensor: the lane axes, then axes of size 1 up to `rank`, then the lane's own.
Tensor LaneGraph::all_lanes(const LaneValue& v, int rank) const {
  if (!v.is_lifted()) return v.tensor;
  Tensor out = v.tensor;
  out.rank = rank + static_cast<int>(kLaneAxes);
  const int shift = rank - v.tensor.rank;
  for (int i = 0; i < rank; ++i) {
    const auto to = static_cast<size_t>(i) + kLaneAxes;
    out.shape[to] = i < shift ? 1 : v.tensor.dim(i - shift);
    out.stride[to] = i < shift ? 0 : v.tensor.step(i - shift);
  }
  for (size_t axis = 0; axis < kLaneAxes; ++axis) {
    out.shape[axis] = v.step[axis] == 0 ? 1 : lanes_[axis];
    out.stride[axis] = v.step[axis];
  }
  return out;
}

// Lifted along the axes that the node's arguments are lifted along, with the last axis varying first.
LaneValue LaneGraph::like_arguments(NodeId n, Tensor t) const {
  LaneValue out{t, {}, has_wide(n)};
  int64_t step = std::max<int64_t>(extent_bytes(t) / dtype_bytes(t.dtype), 1);
  for (size_t axis = kLaneAxes; axis-- > 0;) {
    bool along = false;
    for_values(n, [&](ValueId v) { along |= values_[v.index].step[axis] != 0; });
    if (!along) continue;
    out.step[axis] = step;
    if (__builtin_mul_overflow(step, std::max<int64_t>(lanes_[axis], 1), &step)) step = kTooMany;
  }
  return out;
}

// Bytes that `v`, as laid out by like_arguments, needs.
int64_t LaneGraph::lifted_bytes(const LaneValue& v) const {
  int64_t bytes = extent_bytes(v.tensor);
  for (size_t axis = 0; axis < kLaneAxes; ++axis)
    if (v.step[axis] != 0 && __builtin_mul_overflow(bytes, lanes_[axis], &bytes)) return -1;
  return bytes;
}

LaneValue LaneGraph::lifted(NodeId n, Tensor t) {
  LaneValue out = like_arguments(n, t);
  out.tensor.data = take_bytes(lifted_bytes(out));
  return out;
}

std::byte* LaneGraph::take_bytes(int64_t bytes) {
  Backend* backend = backend_of(*context_);
  if (!backend) return values_memory_.take(bytes);
  if (bytes < 0) throw std::bad_alloc();
  return backend->scratch(DType::u8, std::array{bytes}).data;
}

Result<KernelCall> LaneGraph::call_of(NodeId n, std::vector<Tensor> results, const std::vector<LaneValue>& values) {
  ValueTable table;
  table.scalars.resize(values.size());
  for (const LaneValue& v : values) table.tensors.push_back(v.tensor);
  KernelCall call(*graph_.op_info(n), context_);
  SG_TRY(read_arguments(graph_, n, table, bindings_, &call));
  call.scalars.assign(results.size(), Scalar());
  call.results = std::move(results);
  return call;
}

Status LaneGraph::run_kernel(KernelCall& call) {
  Backend* backend = backend_of(*context_);
  const Kernel kernel = backend ? backend->find_kernel(call.op()) : find_cpu_kernel(call.op().name);
  Status status = kernel(call);
  if (!backend) kernel_memory_.reset();
  return status;
}

Status LaneGraph::call_kernel(NodeId n, std::vector<Tensor> results, const std::vector<LaneValue>& values) {
  SG_ASSIGN(KernelCall call, call_of(n, std::move(results), values));
  return run_kernel(call);
}

// Computes a single block for all lanes.
Status LaneGraph::run_once(NodeId n) {
  std::vector<Tensor> results;
  for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) {
    SG_ASSIGN(Tensor t, result_tensor(n, i));
    t.data = take_bytes(extent_bytes(t));
    results.push_back(t);
    values_[graph_.node(n).result(i).index] = {t, {}, has_wide(n)};
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
    Tensor first = out.tensor;  // checked against the extent of the lane's memory
    t.data = first.data + (*to - *from) * dtype_bytes(t.dtype);
    if (t.elements() > 0 && (t.data < first.data || t.data + extent_bytes(t) > first.data + extent_bytes(first)))
      return unsupported(graph_, n, "reaches beyond its memory");
    out.tensor = t;
    values_[node.result(i).index] = out;
  }
  return ok_status();
}

Status LaneGraph::run_lane_by_lane(NodeId n) {
  if (backend_of(*context_)) return unsupported(graph_, n, "cannot run on a backend");
  const Node& node = graph_.node(n);
  PerLaneAxis lanes = {1, 1, 1};
  for (uint32_t i = 0; i < node.result_count; ++i) {
    SG_ASSIGN(Tensor t, result_tensor(n, i));
    LaneValue& out = values_[node.result(i).index];
    out = lifted(n, t);
    for (size_t axis = 0; axis < kLaneAxes; ++axis)
      if (out.step[axis] != 0) lanes[axis] = lanes_[axis];
  }
  std::vector<LaneValue> table = values_;
  for (int64_t lane = 0; lane < lanes[0] * lanes[1] * lanes[2]; ++lane) {
    std::vector<Tensor> results;
    for (uint32_t i = 0; i < node.result_count; ++i)
      results.push_back(lane_at(values_[node.result(i).index], lanes, lane));
    for_values(n, [&](ValueId v) { table[v.index].tensor = lane_at(values_[v.index], lanes, lane); });
    SG_TRY(call_kernel(n, std::move(results), table));
  }
  return ok_status();
}

}  // namespace sg::cpu
