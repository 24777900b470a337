// Size arithmetic whose result is a known number becomes that number where it is an argument.
#include "libpasses/clean_parts.h"

namespace sg::clean_parts {
namespace {

std::optional<Arg> known_number(const Graph& graph, ValueId v) {
  const NodeId def = graph.value(v).def;
  const OpInfo* op = def ? graph.op_info(def) : nullptr;
  if (op == nullptr || !op->has(kSize)) return std::nullopt;
  const Type& type = graph.type(v);
  if (type.kind != TypeKind::integer && type.kind != TypeKind::boolean) return std::nullopt;
  if (!type.has_value && type.value.is_none()) return std::nullopt;
  const auto number = graph.pool().exprs.constant_value(type.value);
  if (!number) return std::nullopt;
  return type.kind == TypeKind::boolean ? Arg::boolean(*number != 0) : Arg::integer(*number);
}

}  // namespace

size_t fold_sizes(Scope& scope) {
  Graph& graph = scope.graph;
  size_t changes = 0;
  for (NodeId n : graph.nodes()) {
    std::vector<Arg> args = graph.node(n).args;
    bool changed = false;
    for (Arg& arg : args)
      arg.walk_mutable([&](Arg& a) {
        if (!a.is(ArgKind::value)) return;
        std::optional<Arg> number = known_number(graph, a.as_value());
        if (!number) return;
        scope.tally.add(Kind::size, graph, n, "%" + std::string(graph.name(a.as_value())) + " is a known number");
        number->set_key(a.key());
        a = std::move(*number);
        changed = true;
      });
    if (changed) graph.set_args(n, std::move(args)), ++changes;
  }
  return changes;
}

}  // namespace sg::clean_parts
