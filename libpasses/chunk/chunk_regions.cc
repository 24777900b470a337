#include "libpasses/chunk/chunk_regions.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "libgraph/base/checked.h"
#include "libgraph/base/human.h"
#include "libgraph/dtype.h"
#include "libgraph/expr/sizes.h"
#include "libgraph/expr/symbols.h"
#include "libgraph/facts/alias.h"
#include "libgraph/facts/collective_roles.h"
#include "libgraph/modules/module_path.h"
#include "libgraph/operands.h"
#include "libpasses/chunk/chunk_calls.h"

namespace sg {
namespace {

std::string rows_text(int64_t n) { return plural(static_cast<size_t>(n), "row"); }

// Says how many there are if they are too few: always, at the captured sizes, or at any sizes; empty if they suffice.
std::string too_few(const Program& program, Expr rows, int64_t wanted, const auto& count) {
  const Pool& pool = program.graph.pool();
  const auto known = pool.exprs.constant_value(rows);
  const auto captured = evaluate_size(pool, rows, [&](StrId s) {
    const Symbol* symbol = program.find_symbol(s);
    return symbol != nullptr && symbol->kind == SymbolKind::input ? symbol->hint : std::nullopt;
  });
  const Interval range = Facts(program).range(rows);
  if (known) return *known < wanted ? count(*known) : "";
  if (captured && *captured < wanted) return count(*captured) + " at the sizes of the capture";
  return range.has_max() && range.max < wanted ? "at most " + count(range.max) : "";
}

// The shortest prefix of `module` that the pattern matches; empty = none.
std::string_view region_root(const ModulePattern& pattern, std::string_view module) {
  for (const ModulePart& part : parts_of_module(module))
    if (pattern.matches(part.path)) return part.path;
  return {};
}

// By node: which micro-batch it belongs to. A new one begins where a forward node follows a backward node; a backward
// node belongs to the micro-batch of its forward node, which a pipeline may have run much earlier. A forward without a
// linked backward (for metrics) is no micro-batch and counts as part of the first; so does a graph without links.
std::vector<uint32_t> micro_batches(const Graph& graph) {
  std::vector<uint32_t> out(graph.node_id_limit(), 0);
  std::vector<bool> has_backward(1);
  bool is_behind_backward = false;
  for (NodeId n : graph.nodes()) {
    const Node& node = graph.node(n);
    if (node.phase == Phase::optimizer) continue;
    const bool is_backward = node.phase == Phase::backward;
    if (!is_backward && is_behind_backward) has_backward.push_back(false);
    is_behind_backward = is_backward;
    const auto now = static_cast<uint32_t>(has_backward.size() - 1);
    const bool is_linked = is_backward && node.forward;
    out[n.index] = is_linked ? out[node.forward.index] : now;
    if (is_linked) has_backward[out[n.index]] = true;
  }
  for (uint32_t& batch : out)
    if (!has_backward[batch]) batch = 0;
  return out;
}

// By value: whether it is one of `from` or depends on one, by values that count only.
template <class Counts>
std::vector<bool> values_from(const Graph& graph, std::vector<bool> from, const Counts& counts) {
  for (NodeId n : graph.nodes()) {
    bool any = false;
    for_operands(graph, n, [&](ValueId v) { any = any || from[v.index]; });
    for (uint32_t i = 0; any && i < graph.node(n).result_count; ++i)
      if (const ValueId v = graph.node(n).result(i); counts(v)) from[v.index] = true;
  }
  return from;
}

bool has_no_elements(const Graph& graph, ValueId v) {
  const auto is_zero = [&](Expr size) { return graph.pool().exprs.constant_value(size) == 0; };
  return std::ranges::any_of(graph.type(v).shape, is_zero);
}

// By value: whether a collective delivered it to which this rank hands in nothing of its own, as a stage of a pipeline
// that receives.
std::vector<bool> delivered_values(const Graph& graph) {
  std::vector<bool> inputs(graph.value_id_limit(), false), out = inputs;
  for (const Input& input : graph.inputs()) inputs[input.value.index] = true;
  const std::vector<bool> own = values_from(graph, std::move(inputs), [](ValueId) { return true; });
  for (NodeId n : graph.nodes()) {
    if (!launches_collective(graph, n)) continue;
    bool hands_in = false;
    for_operands(graph, n, [&](ValueId v) { hands_in = hands_in || (own[v.index] && !has_no_elements(graph, v)); });
    for (uint32_t i = 0; !hands_in && i < graph.node(n).result_count; ++i) out[graph.node(n).result(i).index] = true;
  }
  return out;
}

void leave_without_exchange(const Graph& graph, ProgramRegions* found) {
  const auto exchanges = [&](NodeId n) { return is_exchange(graph, n); };
  for (size_t r = 0; r < found->regions.size(); ++r)
    if (std::ranges::none_of(found->nodes[r], exchanges)) found->regions[r].refusal = "it exchanges no tokens";
}

}  // namespace

bool launches_collective(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  return op != nullptr && op->has(kCollective) && !op->has(kWait);
}

ProgramRegions find_regions(const Program& program, const ModulePattern& modules, bool only_exchanges) {
  const Graph& graph = program.graph;
  ProgramRegions out;
  std::unordered_map<StrId, std::string, IdHash> root_of;  // by module; empty = in no region
  std::map<std::pair<std::string, uint32_t>, uint32_t> found;
  const std::vector<uint32_t> micro_batch = micro_batches(graph);
  out.of_node.assign(graph.node_id_limit(), kNoRegion);
  for (NodeId n : graph.nodes()) {
    const StrId module = graph.node(n).module;
    if (module.is_none()) continue;
    auto [root, fresh] = root_of.try_emplace(module);
    if (fresh) root->second = region_root(modules, graph.pool().strings[module]);
    if (root->second.empty()) continue;
    const auto [at, is_new] =
        found.try_emplace({root->second, micro_batch[n.index]}, static_cast<uint32_t>(out.regions.size()));
    if (is_new) {
      ChunkRegion region;
      region.module = root->second;
      region.parent = parent_module(root->second);
      out.regions.push_back(std::move(region));
      out.nodes.emplace_back();
    }
    out.of_node[n.index] = at->second;
    out.nodes[at->second].push_back(n);
  }
  split_by_calls(graph, values_from_data(program), &out);
  if (only_exchanges) leave_without_exchange(graph, &out);
  return out;
}

std::vector<bool> values_from_data(const Program& program) {
  const Graph& graph = program.graph;
  const AliasAnalysis alias(program, graph);
  std::vector<bool> is_state(alias.storages().size(), false);
  for (const Input& input : graph.inputs()) {
    const StorageId s = alias.storage_of(input.value);
    if (!s.is_none() && input.kind != InputKind::user) is_state[s.index] = true;
  }
  std::vector<bool> data = delivered_values(graph);
  for (const Input& input : graph.inputs())
    if (input.kind == InputKind::user) data[input.value.index] = true;
  return values_from(graph, std::move(data), [&](ValueId v) {
    const StorageId s = alias.storage_of(v);
    return s.is_none() || !is_state[s.index];
  });
}

std::vector<bool> received_values(const Graph& graph) {
  return values_from(graph, delivered_values(graph), [&](ValueId v) {
    const OpInfo* op = graph.op_info(graph.value(v).def);
    return op != nullptr && (op->has(kView) || op->has(kWait));
  });
}

std::vector<bool> values_from_tangents(const Graph& graph) {
  std::vector<bool> tangents(graph.value_id_limit(), false);
  for (const Input& input : graph.inputs())
    if (input.kind == InputKind::tangent) tangents[input.value.index] = true;
  return values_from(graph, std::move(tangents), [](ValueId) { return true; });
}

ValueId find_activation(const Graph& graph, uint32_t region, const std::vector<NodeId>& nodes,
                        const std::vector<uint32_t>& region_of, const std::vector<bool>& from_data) {
  ValueId found;
  for (NodeId n : nodes) {
    if (graph.node(n).phase != Phase::forward) continue;
    for_operands(graph, n, [&](ValueId v) {
      const Type& t = graph.type(v);
      const NodeId def = graph.value(v).def;
      if (t.kind != TypeKind::tensor || t.shape.empty() || !from_data[v.index] ||
          (def && region_of[def.index] == region))
        return;
      const bool better = found.is_none() || (is_floating(t.dtype) && !is_floating(graph.type(found).dtype));
      if (better) found = v;
    });
    if (!found.is_none() && is_floating(graph.type(found).dtype)) return found;
  }
  return found;
}

RowCut cut_at_entries(ExprPool* exprs, uint32_t axis, Expr rows, const std::vector<RowsTogether>& together) {
  RowCut out{axis, rows, exprs->constant(1)};
  for (;;) {
    const auto more = std::ranges::find(together, out.entries, &RowsTogether::rows);
    if (more == together.end()) return out;
    out.entries = exprs->floordiv(out.entries, more->together);
    out.unit = exprs->mul(out.unit, more->together);
  }
}

std::string too_few_rows(const Program& program, const ChunkOptions& options, ValueId activation, const RowCut& cut) {
  ExprPool& exprs = program.graph.pool().exprs;
  const std::string what = "axis " + std::to_string(cut.axis) + " of %" + std::string(program.graph.name(activation));
  const std::string chunks = ": too few for " + std::to_string(options.chunks) + " chunks";
  const std::string of_least = options.least_rows > 1 ? " of " + std::to_string(options.least_rows) : "";
  if (exprs.constant_value(cut.unit) == 1) {
    const auto wanted = checked_mul(options.chunks, options.least_rows).value_or(INT64_MAX);
    const std::string most = too_few(program, cut.entries, wanted, rows_text);
    return most.empty() ? "" : what + " has " + most + chunks + of_least;
  }
  const auto entries_text = [&](int64_t n) {
    return std::to_string(n) + (n == 1 ? " entry" : " entries") + " of " + exprs.print(cut.unit) + " rows";
  };
  if (const std::string most = too_few(program, cut.entries, options.chunks, entries_text); !most.empty())
    return what + " has " + most + chunks;
  const Expr least = exprs.mul(exprs.floordiv(cut.entries, exprs.constant(options.chunks)), cut.unit);
  const std::string most = too_few(program, least, options.least_rows, rows_text);
  return most.empty() ? "" : what + ", cut at whole entries, has a chunk of " + most + chunks + of_least;
}

Result<RowCut> find_cut(const Program& program, const ChunkOptions& options, const ChunkRegion& region,
                        const std::vector<RowsTogether>& together, const ChunkRefusals& why_not) {
  const Graph& graph = program.graph;
  const ValueId v = region.activation;
  if (v.is_none()) return why_not.of_module(region, "no tensor that depends on the data of the step enters it");
  const size_t rank = graph.type(v).shape.size();
  if (options.along == ChunkAlong::tokens && rank > 2)
    return why_not.of_module(region, "%" + std::string(graph.name(v)) + " has " + std::to_string(rank) +
                                         " axes and no axis of tokens: use --along batch or seq");
  const uint32_t axis = options.along == ChunkAlong::sequence && rank > 2 ? 1 : 0;
  const RowCut cut = cut_at_entries(&graph.pool().exprs, axis, graph.type(v).shape[axis], together);
  if (const std::string few = too_few_rows(program, options, v, cut); !few.empty())
    return why_not.of_module(region, few);
  return cut;
}

}  // namespace sg
