#include "libpasses/chunk/chunk_refusals.h"

namespace sg {

Error ChunkRefusals::at_node(NodeId n, std::string_view rule, const std::string& why) const {
  const Graph& graph = program_.graph;
  Error out{
      ErrorKind::cannot_apply,
      place_of(program_, graph, n) + ": " + std::string(graph.op_name(n)) + " [" + std::string(rule) + "]: " + why,
      {},
      remedy(rule == kMemoryRule ? "run sg-clean first, which replaces writes by new values, or chunk a smaller module"
                                 : "chunk a smaller module")};
  if (SourceId source = graph.node(n).source; source) {
    out.where.file = graph.pool().strings[graph.pool().sources[source].file];
    out.where.line = graph.pool().sources[source].line;
  }
  return out;
}

Error ChunkRefusals::of_module(const ChunkRegion& region, const std::string& why) const {
  return {ErrorKind::cannot_apply, "module " + region.module + ": " + why, {}, remedy("fewer chunks, other modules")};
}

std::string ChunkRefusals::remedy(std::string_view other) const {
  return std::string(other) + (best_effort_ ? "" : ", or give --best-effort to leave this one whole");
}

}  // namespace sg
