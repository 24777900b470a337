#include "libpasses/auto_chunk/amplifiers.h"

#include <algorithm>
#include <unordered_set>

#include "libgraph/dtype.h"
#include "libgraph/facts/purity.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"
#include "libpasses/chunk/chunk_regions.h"

namespace sg {
namespace {

// By node: whether a product in the forward consumes it, directly or not. False for all nodes without a backward.
std::vector<bool> nodes_before_products(const Graph& graph) {
  std::vector<bool> out(graph.node_id_limit(), false);
  bool has_backward = false;
  for (NodeId n : graph.nodes()) has_backward = has_backward || graph.node(n).phase == Phase::backward;
  for (NodeId n = has_backward ? graph.last() : NodeId(); n; n = graph.previous(n)) {
    if (graph.node(n).phase != Phase::forward) continue;
    const OpInfo* op = graph.op_info(n);
    if (!out[n.index] && (op == nullptr || !op->has(kContraction))) continue;
    for_operands(graph, n, [&](ValueId v) {
      if (const NodeId def = graph.value(v).def) out[def.index] = true;
    });
  }
  return out;
}

}  // namespace

SizeValues assumed_sizes(const Program& program) {
  return [&program](StrId s) -> std::optional<int64_t> {
    const Symbol* symbol = program.find_symbol(s);
    if (symbol == nullptr) return std::nullopt;
    return symbol->hint ? symbol->hint : symbol->max;
  };
}

Amplifiers find_amplifiers(const Program& program, const AutoChunkOptions& options) {
  const Graph& graph = program.graph;
  const SizeValues sizes = assumed_sizes(program);
  const std::vector<bool> from_data = values_from_data(program);
  const std::vector<bool> backward = values_from_tangents(graph);
  const std::vector<bool> before_products = nodes_before_products(graph);
  Amplifiers out;
  for (NodeId n : graph.nodes()) {
    const OpInfo* op = graph.op_info(n);
    const Node& node = graph.node(n);
    if (node.phase != Phase::forward || op == nullptr || !is_pure(graph, n) || op->has(kView) || op->has(kCollective) ||
        op->has(kHigherOrder) || node.result_count == 0)
      continue;
    const Type& made = graph.type(node.result(0));
    if (made.kind != TypeKind::tensor || !is_floating(made.dtype) || backward[node.result(0).index]) continue;
    Amplifier found{n, storage_bytes(graph.pool(), made, sizes).value_or(0), 0};
    int64_t data = 0;  // bytes of the largest argument; a list, which is concatenated, counts as a whole
    for (const Arg& arg : node.args) {
      int64_t in_arg = 0;
      std::unordered_set<uint32_t> seen;
      arg.walk([&](const Arg& a) {
        if (!a.is(ArgKind::value) || graph.type(a.as_value()).kind != TypeKind::tensor) return;
        found.taken_bytes += distinct_bytes(graph.pool(), graph.type(a.as_value()), sizes).value_or(0);
        if (from_data[a.as_value().index] && seen.insert(a.as_value().index).second)
          in_arg += element_count(graph.pool(), graph.type(a.as_value()), sizes).value_or(0);
      });
      data = std::max(data, in_arg);
    }
    const int64_t count = element_count(graph.pool(), made, sizes).value_or(0);
    const bool amplifies = options.ratio ? count > data && found.ratio() > *options.ratio : count / 2 > data;
    if (data > 0 && amplifies && found.bytes > options.min_output)
      (before_products[n.index] ? out.layers : out.found).push_back(found);
  }
  for (auto* list : {&out.found, &out.layers})
    std::ranges::stable_sort(*list, [](const Amplifier& a, const Amplifier& b) { return a.bytes > b.bytes; });
  return out;
}

}  // namespace sg
