#include "libpasses/size_plumbing.h"

#include <algorithm>
#include <cmath>

#include "libgraph/facts/computed_number.h"
#include "libgraph/op.h"

namespace sg {
namespace {

// The number that the value's type says it is.
std::optional<Scalar> number_of(const Graph& graph, ValueId v) {
  const Type& type = graph.type(v);
  if (type.value.is_none() || (type.kind != TypeKind::integer && type.kind != TypeKind::boolean)) return std::nullopt;
  const auto number = graph.pool().exprs.constant_value(type.value);
  if (!number) return std::nullopt;
  return type.kind == TypeKind::boolean ? Scalar::boolean(*number != 0) : Scalar::integer(*number);
}

Arg as_argument(Scalar s) {
  if (s.kind == Scalar::Kind::boolean) return Arg::boolean(s.i != 0);
  return s.is_integral() ? Arg::integer(s.i) : Arg::floating(s.re);
}

}  // namespace

// Does not look through computed operands: callers work in schedule order and have replaced those already.
std::optional<Scalar> computed_number(const Graph& graph, NodeId n) {
  return computed_number(graph, n, [&graph](ValueId v) { return number_of(graph, v); });
}

std::optional<Arg> known_size(const Graph& graph, ValueId v) {
  const NodeId def = graph.value(v).def;
  const OpInfo* op = def ? graph.op_info(def) : nullptr;
  if (op == nullptr || !(op->has(kSize) || op->name == "sg.call")) return std::nullopt;  // a body may return a number
  auto number = number_of(graph, v);
  if (!number && graph.type(v).value.is_none())
    number = computed_number(graph, def);  // otherwise its type holds symbols, which the node may define
  return number && std::isfinite(number->to_double()) ? std::optional(as_argument(*number)) : std::nullopt;
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
