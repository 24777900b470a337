#include "libpasses/symbol_uses.h"

namespace sg {

SymbolUses::SymbolUses(const Program& program) : program_(program) {
  if (program.symbols.empty()) return;
  note_graph(program.graph);
  for (const auto& nested : program.nested) note_graph(nested->graph);
  for (const Guard& guard : program.guards) {
    std::vector<StrId> found;
    program.graph.pool().exprs.collect_symbols(guard.left, &found);
    program.graph.pool().exprs.collect_symbols(guard.right, &found);
    in_guards_.insert(found.begin(), found.end());
  }
}

bool SymbolUses::is_used_outside(const Graph& graph, NodeId n, StrId symbol) const {
  if (in_guards_.contains(symbol)) return true;
  const auto it = only_node_.find(symbol);
  return it != only_node_.end() && it->second != Site{&graph, n};
}

void SymbolUses::note(const Site& site, StrId symbol) {
  all_.insert(symbol);
  const std::optional<Site> here = site.node ? std::optional(site) : std::nullopt;
  const auto [it, is_new] = only_node_.emplace(symbol, here);
  if (!is_new && it->second != here) it->second = std::nullopt;
}

void SymbolUses::note_expr(const Site& site, Expr e) {
  const ExprPool& pool = program_.graph.pool().exprs;
  if (e.is_none() || pool.is_constant(e)) return;
  std::vector<StrId> found;
  pool.collect_symbols(e, &found);
  for (StrId s : found) note(site, s);
}

void SymbolUses::note_exprs(const Site& site, const std::vector<Expr>& list) {
  for (Expr e : list) note_expr(site, e);
}

void SymbolUses::note_type(const Site& site, TypeId t) {
  const Pool& pool = program_.graph.pool();
  auto it = of_type_.find(t);
  if (it == of_type_.end()) {
    std::vector<StrId> found;
    const auto add = [&](Expr e) {
      if (!e.is_none()) pool.exprs.collect_symbols(e, &found);
    };
    const Type& type = pool.types[t];
    for (Expr e : type.shape) add(e);
    for (Expr e : type.stride) add(e);
    add(type.offset);
    add(type.value);
    it = of_type_.emplace(t, std::move(found)).first;
  }
  for (StrId s : it->second) note(site, s);
  for (TypeId element : pool.types[t].elements) note_type(site, element);
}

void SymbolUses::note_graph(const Graph& graph) {
  const Site port{&graph, {}};
  for (const Input& input : graph.inputs()) {
    note_type(port, graph.value(input.value).type);
    note_exprs(port, input.sharding.global_shape);
  }
  for (const Output& output : graph.outputs()) note_exprs(port, output.sharding.global_shape);
  for (NodeId n : graph.nodes()) {
    const Site site{&graph, n};
    const Node& node = graph.node(n);
    for (const Arg& arg : node.args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::expr)) note_expr(site, a.as_expr());
      });
    for (uint32_t i = 0; i < node.result_count; ++i) note_type(site, graph.value(node.result(i)).type);
    const NodeMeta& meta = graph.meta(n);
    note_exprs(site, meta.random.origin_shape);
    note_exprs(site, meta.random.origin_offset);
    if (meta.binds)
      for (StrId s : *meta.binds) note(site, s);
  }
}

}  // namespace sg
