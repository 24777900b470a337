#include "libpasses/clean/clean_parts.h"

namespace sg::clean_parts {

bool is_deliberate_copy(const Graph& graph, NodeId n) {
  const NodeMeta& meta = graph.meta(n);
  return meta.copy.kind != CopyKind::none || meta.chunk.region || !meta.result_chunks.empty();
}

void Tally::add(Kind kind, const Graph& graph, NodeId n, const std::string& why) {
  ++counts[static_cast<size_t>(kind)];
  if (keep_lines) lines.push_back("%" + std::string(graph.label(n)) + " " + std::string(graph.op_name(n)) + ": " + why);
}

void Tally::add(Kind kind, const std::string& line) {
  ++counts[static_cast<size_t>(kind)];
  if (keep_lines) lines.push_back(line);
}

size_t Tally::total() const {
  size_t out = 0;
  for (size_t c : counts) out += c;
  return out;
}

}  // namespace sg::clean_parts
