#include "libpasses/size_plumbing.h"

#include "libgraph/expr/guard_text.h"
#include "libgraph/names.h"
#include "libgraph/op.h"

namespace sg {
namespace {

std::optional<int64_t> number_in(const Graph& graph, const Arg& arg) {
  if (arg.is(ArgKind::integer)) return arg.as_int();
  const std::optional<Arg> known = arg.is(ArgKind::value) ? known_size(graph, arg.as_value()) : std::nullopt;
  return known && known->is(ArgKind::integer) ? std::optional(known->as_int()) : std::nullopt;
}

// python.lt and its kin: their results' types do not carry what they say.
std::optional<Arg> known_comparison(const Graph& graph, NodeId n) {
  static constexpr std::string_view kNames[] = {"python.eq", "python.ne", "python.lt",
                                                "python.le", "python.gt", "python.ge"};
  const Node& node = graph.node(n);
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (graph.op_name(n) != kNames[i] || node.args.size() != 2) continue;
    const auto left = number_in(graph, node.args[0]), right = number_in(graph, node.args[1]);
    if (left && right) return Arg::boolean(holds(static_cast<Relation>(i), *left, *right));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Arg> known_size(const Graph& graph, ValueId v) {
  const NodeId def = graph.value(v).def;
  const OpInfo* op = def ? graph.op_info(def) : nullptr;
  if (op == nullptr || !(op->has(kSize) || op->name == "sg.call")) return std::nullopt;  // a body may return a number
  if (auto truth = known_comparison(graph, def)) return truth;
  const Type& type = graph.type(v);
  if ((type.kind != TypeKind::integer && type.kind != TypeKind::boolean) || type.value.is_none()) return std::nullopt;
  const auto number = graph.pool().exprs.constant_value(type.value);
  if (!number) return std::nullopt;
  return type.kind == TypeKind::boolean ? Arg::boolean(*number != 0) : Arg::integer(*number);
}

size_t replace_known_sizes(Graph* graph, const std::function<void(NodeId, ValueId)>& said) {
  size_t changes = 0;
  for (NodeId n : graph->nodes()) {
    std::vector<Arg> args = graph->node(n).args;
    bool changed = false;
    for (Arg& arg : args)
      arg.walk_mutable([&](Arg& a) {
        std::optional<Arg> number = a.is(ArgKind::value) ? known_size(*graph, a.as_value()) : std::nullopt;
        if (!number) return;
        if (said) said(n, a.as_value());
        number->set_key(a.key());
        a = std::move(*number);
        changed = true;
      });
    if (changed) graph->set_args(n, std::move(args)), ++changes;
  }
  return changes;
}

size_t erase_unused_sizes(Graph* graph) {
  size_t erased = 0;
  for (NodeId n = graph->last(), previous; n; n = previous) {
    previous = graph->previous(n);
    const OpInfo* op = graph->op_info(n);
    if (op == nullptr || !op->has(kSize) || graph->node(n).result_count != 1 ||
        graph->is_used(graph->node(n).result(0)))
      continue;
    graph->erase(n);
    ++erased;
  }
  return erased;
}

}  // namespace sg
