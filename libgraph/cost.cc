#include "libgraph/cost.h"

#include <algorithm>
#include <cmath>

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

double CostCall::argument_bytes() const {
  double total = 0;
  for (const Arg& arg : node.args)
    arg.walk([&](const Arg& a) {
      if (a.is(ArgKind::value) && graph.type(a.as_value()).kind == TypeKind::tensor)
        total += bytes(&graph.type(a.as_value()));
    });
  return total;
}

// What a schema marks as written is one tensor with the result it returns: counted with the results, or when the op
// returns nothing, by its argument once more.
double CostCall::result_bytes() const {
  double total = 0;
  for (uint32_t i = 0; i < node.result_count; ++i) total += bytes(result(i));
  if (node.result_count == 0 && op.writes())
    for (const Param& p : op.params) {
      const Arg* a = p.written ? argument(p.name) : nullptr;
      if (a)
        a->walk([&](const Arg& item) {
          if (item.is(ArgKind::value) && graph.type(item.as_value()).kind == TypeKind::tensor)
            total += bytes(&graph.type(item.as_value()));
        });
    }
  return total;
}

namespace cost {
namespace {

OpCost with_bytes(const CostCall& call, double flops) { return {flops, call.argument_bytes() + call.result_bytes()}; }

const Type* first_of(const CostCall& call, std::initializer_list<std::string_view> names) {
  for (std::string_view name : names)
    if (const Type* t = call.tensor(name)) return t;
  return nullptr;
}

const Type* first_tensor(const CostCall& call) {
  for (const Arg& a : call.node.args)
    if (a.is(ArgKind::value) && call.graph.type(a.as_value()).kind == TypeKind::tensor)
      return &call.graph.type(a.as_value());
  return nullptr;
}

// Elements over which each element of a product is summed: the last axis of the left side.
double inner_size(const CostCall& call) {
  return call.dim(first_of(call, {"mat1", "batch1", "mat", "input", "self"}), -1);
}

}  // namespace

OpCost free(const CostCall&) { return {}; }
OpCost fill(const CostCall& call) { return {0, call.result_bytes()}; }

OpCost gather(const CostCall& call) {
  double index_bytes = 0;
  for (std::string_view name : {"index", "indices"})
    if (const Arg* a = call.argument(name))
      a->walk([&](const Arg& item) {
        if (item.is(ArgKind::value)) index_bytes += call.bytes(&call.graph.type(item.as_value()));
      });
  return {0, index_bytes + 2 * call.result_bytes()};
}

// In place only what is scattered moves; the functional form copies all of self first.
OpCost scatter(const CostCall& call) {
  double moved = 0;
  for (std::string_view name : {"values", "src", "source", "value"}) moved += call.bytes(call.tensor(name));
  double index_bytes = 0;
  for (std::string_view name : {"index", "indices", "mask"})
    if (const Arg* a = call.argument(name))
      a->walk([&](const Arg& item) {
        if (item.is(ArgKind::value)) index_bytes += call.bytes(&call.graph.type(item.as_value()));
      });
  double copied = call.op.writes() ? 0 : call.bytes(call.tensor("self")) + call.result_bytes();
  return {0, index_bytes + 2 * moved + copied};
}

OpCost scan(const CostCall& call) { return with_bytes(call, call.elements(first_tensor(call))); }

OpCost sort(const CostCall& call) {
  double n = call.elements(first_tensor(call));
  return with_bytes(call, n > 1 ? n * std::ceil(std::log2(n)) : 0);
}

OpCost fourier(const CostCall& call) {
  double n = std::max(call.elements(first_tensor(call)), call.elements(call.result(0)));
  double length = 1;  // of a line: the root of all there is, where several axes are transformed
  const Arg* dims = call.argument("dim");
  if (dims && dims->is(ArgKind::list))
    for (const Arg& d : dims->items())
      length *= d.is(ArgKind::integer) ? call.dim(call.result(0), static_cast<int>(d.as_int())) : 1;
  return with_bytes(call, length > 1 ? 5 * n * std::log2(length) : 0);
}

namespace {

// The matrices of an argument: how many, of which sizes.
struct MatrixSizes {
  double count, rows, columns;
  double smaller() const { return std::min(rows, columns); }
  double larger() const { return std::max(rows, columns); }
  double eliminated() const { return smaller() * smaller() * (larger() - smaller() / 3); }
};

MatrixSizes matrices(const CostCall& call, std::initializer_list<std::string_view> names) {
  const Type* t = first_of(call, names);
  const double rows = call.dim(t, -2), columns = call.dim(t, -1);
  return {rows * columns > 0 ? call.elements(t) / (rows * columns) : 0, rows, columns};
}

MatrixSizes decomposed(const CostCall& call) { return matrices(call, {"A", "self", "input", "LU"}); }

bool is_given(const CostCall& call, std::string_view name, bool otherwise) {
  const Arg* a = call.argument(name);
  return a && a->is(ArgKind::boolean) ? a->as_bool() : otherwise;
}

// Numbers of the solution, each a row of the matrix with it.
double solved(const CostCall& call) {
  const Type* matrix = call.tensor("self");
  for (std::string_view name : {"LU", "input2", "A"})
    if (call.op.param_index(name) >= 0) matrix = call.tensor(name);
  return call.elements(call.result(0)) * call.dim(matrix, -1);
}

}  // namespace

OpCost cholesky(const CostCall& call) {
  const MatrixSizes m = decomposed(call);
  return with_bytes(call, m.count * m.rows * m.rows * m.rows / 3);
}
OpCost lu(const CostCall& call) { return with_bytes(call, decomposed(call).count * decomposed(call).eliminated()); }
OpCost inverse(const CostCall& call) {
  const MatrixSizes m = decomposed(call);
  return with_bytes(call, 2 * m.count * m.rows * m.rows * m.rows);
}
OpCost solve_once(const CostCall& call) { return with_bytes(call, solved(call)); }
OpCost solve_twice(const CostCall& call) { return with_bytes(call, 2 * solved(call)); }
OpCost solve(const CostCall& call) { return with_bytes(call, lu(call).flops + 2 * solved(call)); }
OpCost qr(const CostCall& call) { return with_bytes(call, 4 * decomposed(call).count * decomposed(call).eliminated()); }
OpCost reflect(const CostCall& call) {
  return with_bytes(call, 4 * call.elements(call.result(0)) * call.dim(call.tensor("input2"), -1));
}
OpCost eigen(const CostCall& call) {
  const MatrixSizes m = decomposed(call);
  return with_bytes(call, (is_given(call, "compute_v", true) ? 9 : 4. / 3) * m.count * m.rows * m.rows * m.rows);
}
OpCost svd(const CostCall& call) {
  const MatrixSizes m = decomposed(call);
  const double k = m.smaller();
  const double with_vectors = 8 * k * k * m.larger() + 12 * k * k * k;
  return with_bytes(call, m.count * (is_given(call, "compute_uv", true) ? with_vectors : 4 * m.eliminated()));
}
OpCost matrix_exp(const CostCall& call) {
  const MatrixSizes m = decomposed(call);
  return with_bytes(call, 15 * m.count * m.rows * m.rows * m.rows);
}

OpCost softmax(const CostCall& call) { return with_bytes(call, 5 * call.elements(first_tensor(call))); }
OpCost normalization(const CostCall& call) { return with_bytes(call, 8 * call.elements(first_tensor(call))); }

OpCost matmul(const CostCall& call) { return with_bytes(call, 2 * call.elements(call.result(0)) * inner_size(call)); }

// Matrices of two axes hold all groups, those of three one each; the offsets part the rows, or the inner axis when both
// have two axes.
OpCost grouped_mm(const CostCall& call) {
  const Type* left = call.tensor("self");
  const Type* right = call.tensor("mat2");
  bool splits_inner = left && right && left->shape.size() == 2 && right->shape.size() == 2;
  double products =
      splits_inner ? call.elements(left) * call.dim(right, -1) : call.elements(call.result(0)) * call.dim(left, -1);
  return with_bytes(call, 2 * products);
}

namespace {

// Multiply-adds of a convolution between `outer` (its output; its input when transposed) and its weight, times two.
double convolution_flops(const CostCall& call, const Type* outer) {
  const Type* weight = call.tensor("weight");
  double channels = call.dim(weight, 0);
  return channels == 0 ? 0 : 2 * call.elements(outer) * call.elements(weight) / channels;
}

bool flag(const Arg* a) { return a && a->is(ArgKind::boolean) && a->as_bool(); }

}  // namespace

OpCost convolution(const CostCall& call) {
  bool transposed = flag(call.argument("transposed")) || call.op.name.find("conv_transpose") != std::string_view::npos;
  return with_bytes(call, convolution_flops(call, transposed ? call.tensor("input") : call.result(0)));
}

OpCost convolution_backward(const CostCall& call) {
  bool transposed = flag(call.argument("transposed"));
  double one = convolution_flops(call, transposed ? call.tensor("input") : call.tensor("grad_output"));
  double products = 0;  // the gradients of input and weight cost as much as the forward, each
  for (uint32_t i = 0; i < 2; ++i) products += call.result(i) != nullptr;
  return with_bytes(call, products * one);
}

namespace {

// The tensor with one number a pair of rows.
const Type* distances_of(const CostCall& call) {
  const Type* saved = first_of(call, {"cdist", "pdist"});
  return saved ? saved : call.result(0);
}

}  // namespace

OpCost distance(const CostCall& call) {
  return with_bytes(call, 3 * call.elements(distances_of(call)) * call.dim(first_of(call, {"x1", "self"}), -1));
}

namespace {

struct AttentionSizes {
  double pairs = 0;  // query positions times key positions, over batch and heads
  double key = 0, value = 0;
};

AttentionSizes attention_sizes(const CostCall& call) {
  const Type* q = call.tensor("query");
  AttentionSizes s;
  s.key = call.dim(q, -1);
  s.value = call.dim(call.tensor("value"), -1);
  double rows = s.key == 0 ? 0 : call.elements(q) / s.key;
  s.pairs = rows * call.dim(call.tensor("key"), -2);
  return s;
}

}  // namespace

OpCost attention(const CostCall& call) {
  AttentionSizes s = attention_sizes(call);
  return with_bytes(call, 2 * s.pairs * (s.key + s.value));
}

// Scores again, then the gradients of value, scores, query and key.
OpCost attention_backward(const CostCall& call) {
  AttentionSizes s = attention_sizes(call);
  return with_bytes(call, 2 * s.pairs * (3 * s.key + 2 * s.value));
}

}  // namespace cost

namespace {

constexpr int kMaxCallDepth = 64;

OpCost cost_by_traits(const CostCall& call) {
  if (call.op.has(kView) || call.op.has(kSize) || call.op.has(kWait) || call.op.has(kAssert)) return {};
  double bytes = call.argument_bytes() + call.result_bytes();
  if (call.op.has(kReduction)) return {call.elements(cost::first_tensor(call)), bytes};
  if (call.op.has(kPointwise)) {
    double largest = 0;
    for (uint32_t i = 0; i < call.node.result_count; ++i) largest = std::max(largest, call.elements(call.result(i)));
    return {largest, bytes};
  }
  if (call.op.has(kContraction)) call.complete = false;  // a product without a rule
  return {0, bytes};
}

}  // namespace

CostModel::CostModel(const Program& program, SizeValues values)
    : program_(program), values_(std::move(values)), bodies_(program.nested.size()) {}
CostModel::~CostModel() = default;

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
  return {c.flops, c.bytes, call.complete};
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

// "_c10d_functional.all_gather_into_tensor_out.default" -> "all_gather_into_tensor_out"
std::string_view base_name(std::string_view op) {
  size_t dot = op.find('.');
  if (dot != std::string_view::npos) op.remove_prefix(dot + 1);
  return op.substr(0, op.find('.'));
}

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

// The part of an exchange that leaves the rank: all but what it sends to itself, of the program's ranks the one that
// sends most. None where the data decides, which stands for equal parts.
std::optional<double> share_sent(const Job& job, const Program& program, GroupId group, const Arg* splits) {
  if (splits == nullptr || !splits->is(ArgKind::list) || group.index >= job.groups.size()) return std::nullopt;
  const ArgList& parts = splits->items();
  double total = 0;
  for (const Arg& part : parts) {
    if (!part.is(ArgKind::integer)) return std::nullopt;
    total += static_cast<double>(part.as_int());
  }
  if (parts.empty() || total <= 0) return std::nullopt;
  double own = total;
  for (const GroupPart& members : job.groups[group.index].parts)
    for (size_t i = 0; i < std::min(members.ranks.size(), parts.size()); ++i)
      if (program.ranks.empty() || std::ranges::binary_search(program.ranks, members.ranks[i]))
        own = std::min(own, static_cast<double>(parts[i].as_int()));
  return (total - own) / total;
}

}  // namespace

std::string_view communication_kind(std::string_view op) {
  std::string_view base = base_name(op);
  for (std::string_view kind : {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast"})
    if (base.substr(0, kind.size()) == kind) return kind;
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
        if (!item.is(ArgKind::value)) return;
        const Type& type = graph.type(item.as_value());
        if (type.kind == TypeKind::tensor)  // expanded axes are sent in full
          out.payload_bytes += call.elements(&type) * dtype_bytes(type.dtype);
      });
  double factor = wire_factor(out.kind, group_size(job, program, out.group));
  if (out.kind == "all_to_all")
    factor = share_sent(job, program, out.group, call.argument("input_split_sizes")).value_or(factor);
  out.wire_bytes = out.payload_bytes * factor;
  out.complete = call.complete;
  return out;
}

}  // namespace sg
