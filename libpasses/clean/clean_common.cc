// Common subexpressions. A value is not kept alive for a later twin: the twin is replaced only if the first is still in
// memory.
#include "libgraph/edit/rewrite.h"
#include "libpasses/clean/clean_parts.h"
#include "libpasses/value_numbers.h"

namespace sg::clean_parts {
namespace {

bool is_alive_at(const AliasAnalysis& alias, const Schedule& schedule, ValueId v, uint32_t position) {
  const uint32_t c = class_of(alias, v);
  return c == kNoClass || schedule.last_use(c) >= position;
}

bool may_merge(const Graph& graph, const AliasAnalysis& alias, const Schedule& schedule, NodeId first, NodeId twin) {
  const Node &a = graph.node(first), &b = graph.node(twin);
  if (a.phase != b.phase || graph.meta(first).recompute != graph.meta(twin).recompute) return false;
  if (is_deliberate_copy(graph, first) || is_deliberate_copy(graph, twin)) return false;
  const OpInfo* op = graph.op_info(twin);
  const bool is_view = op->has(kView) || op->has(kMayAlias);
  for (uint32_t i = 0; i < b.result_count; ++i) {
    if (is_view && alias.must_alias(a.result(i), b.result(i))) continue;
    if (!is_private(alias, schedule, a.result(i)) || !is_private(alias, schedule, b.result(i))) return false;
    if (!is_alive_at(alias, schedule, a.result(i), schedule.position(twin))) return false;
  }
  return true;
}

}  // namespace

size_t merge_common(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule) {
  Graph& graph = scope.graph;
  const ValueNumbers numbers(graph, alias, ValueNumbers::Launches::themselves);
  size_t changes = 0;
  for (NodeId n : graph.nodes()) {
    const NodeId first = numbers.leader(n);
    if (first == n || !graph.has_used_result(n) || !may_merge(graph, alias, schedule, first, n)) continue;
    scope.tally.add(Kind::common, graph, n, "computes what %" + std::string(graph.label(first)) + " does");
    replace_results(&graph, n, first);
    ++changes;
  }
  return changes;
}

}  // namespace sg::clean_parts
