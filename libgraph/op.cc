#include "libgraph/op.h"

#include <algorithm>
#include <cassert>
#include <unordered_map>

#include "libgraph/facts/cost.h"
#include "libgraph/graph.h"
#include "libgraph/infer/infer_rules.h"
#include "libgraph/job.h"
#include "libgraph/op_schema.h"

namespace sg {
namespace {

InferRule rule_or_null(InferRule rule) { return rule == infer::none ? nullptr : rule; }

struct Table {
  std::vector<OpInfo> rows;
  std::unordered_map<std::string_view, const OpInfo*> by_name;

  void add(std::string_view name, std::string_view schema, uint32_t traits, InferRule infer, CostRule cost,
           ChunkRule chunk, std::string_view linear_in) {
    OpInfo op;
    op.name = name;
    op.schema = schema;
    op.traits = traits;
    op.infer = infer;
    op.cost = cost;
    op.chunk = chunk;
    op.linear_in = linear_in;
    [[maybe_unused]] Status parsed = parse_schema(&op);
    assert(parsed.ok());
    rows.push_back(std::move(op));
  }

  Table() {
#define SG_OP(name, schema, traits, infer_rule, cost_rule, chunk_rule, linear_in) \
  add(name, schema, traits, rule_or_null(infer::infer_rule), cost::cost_rule, ChunkRule::chunk_rule, linear_in);
#include "libgraph/op.def"
#undef SG_OP
    by_name.reserve(rows.size());
    for (const OpInfo& op : rows) by_name.emplace(op.name, &op);
  }
};

const Table& table() {
  static const Table the_table;
  return the_table;
}

bool is_zero(const Arg& a) {
  return (a.is(ArgKind::floating) && a.as_float() == 0) || (a.is(ArgKind::integer) && a.as_int() == 0);
}

void collect_type_symbols(const Pool& pool, const Type& type, std::vector<StrId>* out) {
  for (Expr e : type.shape) pool.exprs.collect_symbols(e, out);
  for (Expr e : type.stride) pool.exprs.collect_symbols(e, out);
  if (type.kind == TypeKind::tensor) pool.exprs.collect_symbols(type.offset, out);
  if (type.has_value && type.kind != TypeKind::floating) pool.exprs.collect_symbols(type.value, out);
  for (TypeId element : type.elements) collect_type_symbols(pool, pool.types[element], out);
}

std::vector<StrId> argument_symbols(const Graph& graph, const Node& node) {
  std::vector<StrId> known;
  for (const Arg& arg : node.args)
    arg.walk([&](const Arg& a) {
      if (a.is(ArgKind::value)) collect_type_symbols(graph.pool(), graph.type(a.as_value()), &known);
      if (a.is(ArgKind::expr)) graph.pool().exprs.collect_symbols(a.as_expr(), &known);
    });
  return known;
}

}  // namespace

int OpInfo::param_index(std::string_view param_name) const {
  for (size_t i = 0; i < params.size(); ++i)
    if (params[i].name == param_name) return static_cast<int>(i);
  return -1;
}

bool OpInfo::writes() const {
  return std::any_of(params.begin(), params.end(), [](const Param& p) { return p.written; });
}

const OpInfo* find_op(std::string_view full_name) {
  auto it = table().by_name.find(full_name);
  return it == table().by_name.end() ? nullptr : it->second;
}

std::span<const OpInfo> all_ops() { return table().rows; }

const Arg* argument(const Node& node, const OpInfo& op, const StringTable& strings, std::string_view name) {
  int index = op.param_index(name);
  if (index < 0) return nullptr;
  for (size_t i = 0; i < node.args.size(); ++i) {
    const Arg& a = node.args[i];
    if (a.key().is_none() ? i == static_cast<size_t>(index) : strings[a.key()] == name) return &a;
  }
  return nullptr;
}

bool draws_random(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  if (op == nullptr) return false;
  if (op->has(kRandom)) return true;
  if (!op->has(kRandomIfDropout)) return false;
  std::string_view name = op->param_index("dropout_p") >= 0 ? "dropout_p" : "p";
  const Arg* probability = argument(graph.node(n), *op, graph.pool().strings, name);
  if (probability == nullptr || is_zero(*probability)) return false;
  const Arg* train = argument(graph.node(n), *op, graph.pool().strings, "train");
  return train == nullptr || !train->is(ArgKind::boolean) || train->as_bool();
}

bool writes_arguments(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  if (op == nullptr || !op->writes()) return false;
  if (!op->has(kWritesInTraining)) return true;
  const Arg* training = argument(graph.node(n), *op, graph.pool().strings, "training");
  if (training != nullptr && training->is(ArgKind::boolean) && !training->as_bool()) return false;
  return std::ranges::any_of(op->params, [&](const Param& param) {
    const Arg* given = param.written ? argument(graph.node(n), *op, graph.pool().strings, param.name) : nullptr;
    return given != nullptr && !given->is(ArgKind::none);
  });
}

uint32_t split_result_count(const OpInfo* op, std::span<const Arg> args) {
  int index = op == nullptr || !op->returns_list ? -1 : op->param_index("split_sizes");
  if (index < 0 || static_cast<size_t>(index) >= args.size() || !args[static_cast<size_t>(index)].is(ArgKind::list))
    return 0;
  return static_cast<uint32_t>(args[static_cast<size_t>(index)].items().size());
}

std::vector<StrId> default_binds(const Program& program, const Graph& graph, NodeId n) {
  std::vector<StrId> binds;
  const OpInfo* op = graph.op_info(n);
  if (op != nullptr && !op->has(kBindsSymbol)) return binds;
  const Node& node = graph.node(n);
  std::vector<StrId> known;
  bool have_known = false;
  auto bind = [&](Expr e) {
    std::optional<StrId> name = graph.pool().exprs.as_symbol(e);
    if (!name || std::find(binds.begin(), binds.end(), *name) != binds.end()) return;
    const Symbol* symbol = program.find_symbol(*name);
    if (symbol == nullptr || symbol->kind != SymbolKind::data) return;
    if (!have_known) known = argument_symbols(graph, node);
    have_known = true;
    if (std::find(known.begin(), known.end(), *name) == known.end()) binds.push_back(*name);
  };
  for (uint32_t i = 0; i < node.result_count; ++i) {
    const Type& type = graph.type(node.result(i));
    if (type.kind == TypeKind::integer && type.has_value) bind(type.value);
    for (Expr size : type.shape) bind(size);
  }
  return binds;
}

bool has_hidden_bits(std::string_view op) { return op == "aten._conj.default" || op == "aten._neg_view.default"; }

}  // namespace sg
