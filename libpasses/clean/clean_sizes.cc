// Sizes that are known numbers, and sizes that an earlier node has read.
#include <algorithm>
#include <unordered_map>

#include "libpasses/clean/clean_parts.h"
#include "libpasses/size_plumbing.h"

namespace sg::clean_parts {
namespace {

// An integer as an expression in symbols of the inputs; none otherwise. Data-dependent numbers stay where they are
// read, because sg-chunk relies on the tensor from which a count was read.
Expr size_of_inputs(const Program& program, const Graph& graph, ValueId v) {
  const Type& type = graph.type(v);
  if (type.kind != TypeKind::integer || type.value.is_none()) return Expr();
  std::vector<StrId> symbols;
  graph.pool().exprs.collect_symbols(type.value, &symbols);
  const bool is_of_inputs = !symbols.empty() && std::ranges::all_of(symbols, [&](StrId name) {
    const Symbol* symbol = program.find_symbol(name);
    return symbol != nullptr && symbol->kind == SymbolKind::input;
  });
  return is_of_inputs ? type.value : Expr();
}

}  // namespace

size_t fold_sizes(Scope& scope) {
  return replace_known_sizes(&scope.graph, [&](NodeId n, ValueId size) {
    scope.tally.add(Kind::size, scope.graph, n, "%" + std::string(scope.graph.name(size)) + " is a known number");
  });
}

size_t merge_sizes(Scope& scope) {
  Graph& graph = scope.graph;
  std::unordered_map<Expr, ValueId, IdHash> first;
  size_t changes = 0;
  for (NodeId n : graph.nodes()) {
    const OpInfo* op = graph.op_info(n);
    if (op == nullptr || !op->has(kSize) || graph.node(n).result_count != 1) continue;
    const ValueId twin = graph.node(n).result(0);
    const Expr size = size_of_inputs(scope.program, graph, twin);
    if (size.is_none() || !graph.is_used(twin)) continue;
    const ValueId known = first.emplace(size, twin).first->second;
    if (known == twin) continue;
    scope.tally.add(Kind::common, graph, n, "is the size that %" + std::string(graph.name(known)) + " is");
    graph.replace_uses(twin, known);
    ++changes;
  }
  return changes;
}

}  // namespace sg::clean_parts
