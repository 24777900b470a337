#include "libgraph/facts/cost.h"

#include <algorithm>

#include "libgraph/op_name.h"
#include "libgraph/operands.h"

namespace sg {

const Arg* CostCall::argument(std::string_view name) const {
  return sg::argument(node, op, graph.pool().strings, name);
}

const Type* CostCall::tensor(std::string_view name) const {
  const Arg* a = argument(name);
  if (!a || !a->is(ArgKind::value)) return nullptr;
  const Type& type = graph.type(a->as_value());
  return type.kind == TypeKind::tensor ? &type : nullptr;
}

const Type* CostCall::result(uint32_t i) const {
  if (i >= node.result_count) return nullptr;
  const Type& type = graph.type(node.result(i));
  return type.kind == TypeKind::tensor ? &type : nullptr;
}

double CostCall::elements(const Type* type) const {
  if (!type) return 0;
  auto count = element_count(graph.pool(), *type, values);
  complete &= count.has_value();
  return static_cast<double>(count.value_or(0));
}

double CostCall::bytes(const Type* type) const {
  if (!type) return 0;
  auto count = distinct_bytes(graph.pool(), *type, values);
  complete &= count.has_value();
  return static_cast<double>(count.value_or(0));
}

double CostCall::dim(const Type* type, int index) const {
  if (!type) return 1;
  int rank = static_cast<int>(type->shape.size());
  int i = index < 0 ? index + rank : index;
  if (i < 0 || i >= rank) return 1;
  auto size = evaluate_size(graph.pool(), type->shape[static_cast<size_t>(i)], values);
  complete &= size.has_value();
  return static_cast<double>(std::max<int64_t>(size.value_or(0), 0));
}

double CostCall::bytes_in(const Arg& arg) const {
  double total = 0;
  arg.walk([&](const Arg& a) {
    if (a.is(ArgKind::value) && graph.type(a.as_value()).kind == TypeKind::tensor)
      total += bytes(&graph.type(a.as_value()));
  });
  return total;
}

const Type* CostCall::first_tensor() const {
  for (const Arg& a : node.args)
    if (a.is(ArgKind::value) && graph.type(a.as_value()).kind == TypeKind::tensor) return &graph.type(a.as_value());
  return nullptr;
}

double CostCall::argument_bytes() const {
  double total = 0;
  for (const Arg& arg : node.args) total += bytes_in(arg);
  return total;
}

// An argument that the schema marks as written is the same tensor as the result returned for it: it is counted with the
// results, or as an argument once more if the op returns nothing.
double CostCall::result_bytes() const {
  double total = 0;
  for (uint32_t i = 0; i < node.result_count; ++i) total += bytes(result(i));
  if (node.result_count > 0) return total;
  for (const Param& p : op.params)
    if (const Arg* a = p.written ? argument(p.name) : nullptr) total += bytes_in(*a);
  return total;
}

namespace {

constexpr int kMaxCallDepth = 64;

OpCost cost_by_traits(const CostCall& call) {
  if (call.op.has(kView) || call.op.has(kSize) || call.op.has(kWait) || call.op.has(kAssert)) return {};
  double bytes = call.argument_bytes() + call.result_bytes();
  if (call.op.has(kReduction)) return {call.elements(call.first_tensor()), bytes};
  if (call.op.has(kPointwise)) {
    double largest = 0;
    for (uint32_t i = 0; i < call.node.result_count; ++i) largest = std::max(largest, call.elements(call.result(i)));
    return {largest, bytes};
  }
  if (call.op.has(kContraction)) call.complete = false;  // a contraction without a rule: its flops are unknown
  return {0, bytes};
}

}  // namespace

CostModel::CostModel(const Program& program, SizeValues values)
    : program_(program), values_(std::move(values)), bodies_(program.nested.size()) {}
CostModel::~CostModel() = default;

namespace {

bool has_unknown_operand(const Graph& graph, NodeId n) {
  bool out = false;
  for_operands(graph, n, [&](ValueId v) { out |= graph.type(v).kind == TypeKind::unknown; });
  return out;
}

}  // namespace

NodeCost CostModel::node(const Graph& graph, NodeId n) {
  static const OpInfo kUnknown;
  const OpInfo* op = graph.op_info(n);
  CostCall call{graph, graph.node(n), op ? *op : kUnknown, values_};
  if (!op) return {0, call.argument_bytes() + call.result_bytes(), false};
  if (op->name == "sg.call") {
    for (const Arg& arg : call.node.args)
      if (arg.is(ArgKind::graph)) return body(arg.as_graph());
    return {0, 0, false};
  }
  OpCost c = op->cost ? op->cost(call) : cost_by_traits(call);
  return {c.flops, c.bytes, call.complete && (op->has(kView) || !has_unknown_operand(graph, n))};
}

NodeCost CostModel::body(NestedId id) {
  if (id.index >= bodies_.size() || bodies_[id.index].state == Body::State::in_progress || depth_ >= kMaxCallDepth)
    return {0, 0, false};
  if (bodies_[id.index].state == Body::State::done) return bodies_[id.index].cost;
  bodies_[id.index].state = Body::State::in_progress;
  ++depth_;
  NodeCost total;
  const Graph& graph = program_.nested[id.index]->graph;
  for (NodeId n : graph.nodes()) {
    NodeCost c = node(graph, n);
    total.flops += c.flops;
    total.bytes += c.bytes;
    total.complete &= c.complete;
  }
  --depth_;
  bodies_[id.index] = {Body::State::done, total};
  return total;
}

namespace {

double group_size(const Job& job, const Program& program, GroupId g) {
  if (g.index >= job.groups.size() || job.groups[g.index].parts.empty()) return 1;
  const GroupPart* part = job.groups[g.index].part_of(program.ranks.empty() ? 0 : program.ranks[0]);
  return static_cast<double>((part ? *part : job.groups[g.index].parts[0]).ranks.size());
}

double wire_factor(std::string_view kind, double n) {
  if (kind == "all_gather") return n - 1;
  if (kind == "all_reduce") return 2 * (n - 1) / n;
  if (kind == "reduce_scatter" || kind == "all_to_all") return (n - 1) / n;
  return 1;
}

std::optional<int64_t> number_of(const CostCall& call, const Arg& arg) {
  if (arg.is(ArgKind::integer)) return arg.as_int();
  if (arg.is(ArgKind::expr)) return evaluate_size(call.graph.pool(), arg.as_expr(), call.values);
  if (!arg.is(ArgKind::value)) return std::nullopt;
  const Type& type = call.graph.type(arg.as_value());
  if (type.kind != TypeKind::integer || !type.has_value) return std::nullopt;
  return evaluate_size(call.graph.pool(), type.value, call.values);
}

// The share of an exchange that leaves the rank, or comes from others: all but what the rank sends to itself, for the
// rank of the program that has most. None if a split size is not known, which stands for equal parts.
std::optional<double> share_of_others(const Job& job, const Program& program, const CostCall& call, GroupId group,
                                      std::string_view split_sizes) {
  const Arg* splits = call.argument(split_sizes);
  if (splits == nullptr || !splits->is(ArgKind::list) || group.index >= job.groups.size()) return std::nullopt;
  std::vector<double> parts;
  double total = 0;
  for (const Arg& split : splits->items()) {
    const auto size = number_of(call, split);
    if (!size) return std::nullopt;
    total += parts.emplace_back(static_cast<double>(*size));
  }
  if (parts.empty() || total <= 0) return std::nullopt;
  double own = total;
  for (const GroupPart& members : job.groups[group.index].parts)
    for (size_t i = 0; i < std::min(members.ranks.size(), parts.size()); ++i)
      if (program.ranks.empty() || std::ranges::binary_search(program.ranks, members.ranks[i]))
        own = std::min(own, parts[i]);
  return (total - own) / total;
}

// Of a tensor as it is sent: expanded axes in full.
double bytes_of(const CostCall& call, ValueId v) {
  const Type& type = call.graph.type(v);
  return type.kind == TypeKind::tensor ? call.elements(&type) * dtype_bytes(type.dtype) : 0;
}

}  // namespace

std::string_view communication_kind(std::string_view op) {
  std::string_view base = base_name(op);
  for (std::string_view kind : {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast"})
    if (base.starts_with(kind)) return kind;
  return base;
}

Communication communication_of(const Job& job, const Program& program, const Graph& graph, NodeId n,
                               const SizeValues& values) {
  const OpInfo& op = *graph.op_info(n);
  CostCall call{graph, graph.node(n), op, values};
  Communication out;
  out.kind = communication_kind(op.name);
  for (const Arg& a : call.node.args)
    if (a.is(ArgKind::group)) out.group = a.as_group();
  for (std::string_view name : {"input", "inputs", "self"})
    if (const Arg* a = call.argument(name))
      a->walk([&](const Arg& item) {
        if (item.is(ArgKind::value)) out.payload_bytes += bytes_of(call, item.as_value());
      });
  double factor = wire_factor(out.kind, group_size(job, program, out.group));
  if (out.kind == "all_to_all") {
    if (const auto share = share_of_others(job, program, call, out.group, "output_split_sizes"))
      for (uint32_t i = 0; i < call.node.result_count; ++i)
        out.received_bytes += bytes_of(call, call.node.result(i)) * *share;
    factor = share_of_others(job, program, call, out.group, "input_split_sizes").value_or(factor);
  }
  out.wire_bytes = out.payload_bytes * factor;
  out.complete = call.complete;
  return out;
}

}  // namespace sg
