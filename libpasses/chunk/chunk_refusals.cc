#include "libpasses/chunk/chunk_refusals.h"

#include <algorithm>
#include <set>
#include <vector>

namespace sg {
namespace {

// Whether only assertions depend on the node.
bool is_for_assertions(const Graph& graph, NodeId n) {
  std::vector<NodeId> left{n};
  std::set<NodeId> seen{n};
  while (!left.empty()) {
    const NodeId at = left.back();
    left.pop_back();
    const OpInfo* op = graph.op_info(at);
    if (op != nullptr && op->has(kAssert)) continue;
    const Node& node = graph.node(at);
    if (node.result_count == 0) return false;
    for (uint32_t i = 0; i < node.result_count; ++i) {
      const ValueId v = node.result(i);
      if (std::ranges::any_of(graph.outputs(), [&](const Output& output) { return output.value == v; })) return false;
      for (NodeId user : graph.users(v))
        if (seen.insert(user).second) left.push_back(user);
    }
  }
  return true;
}

}  // namespace

Error ChunkRefusals::at_node(NodeId n, std::string_view rule, const std::string& why) const {
  const Graph& graph = program_.graph;
  Error out{
      ErrorKind::cannot_apply,
      place_of(program_, graph, n) + ": " + std::string(graph.op_name(n)) + " [" + std::string(rule) + "]: " + why,
      {},
      remedy(rule == kMemoryRule  ? "run sg-clean first, which replaces writes by new values, or chunk a smaller module"
             : rule == kRanksRule ? "chunk modules that all ranks of the group hold"
             : is_for_assertions(graph, n) ? "run sg-clean --drop-asserts first, as only an assertion needs it"
                                           : "chunk a smaller module")};
  if (SourceId source = graph.node(n).source; source) {
    out.where.file = graph.pool().strings[graph.pool().sources[source].file];
    out.where.line = graph.pool().sources[source].line;
  }
  return out;
}

Error ChunkRefusals::of_module(const ChunkRegion& region, const std::string& why) const {
  const std::string where = program_.ranks.empty() ? "" : place_of(program_, program_.graph, NodeId()) + ", ";
  return {ErrorKind::cannot_apply,
          where + "module " + region.module + ": " + why,
          {},
          remedy("fewer chunks, other modules")};
}

std::string ChunkRefusals::remedy(std::string_view other) const {
  return std::string(other) + (best_effort_ ? "" : ", or give --best-effort to leave this one whole");
}

}  // namespace sg
