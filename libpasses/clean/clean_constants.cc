// Duplicate constants: nodes use the first. The second stays in its place among the inputs, and outputs keep their
// memory.
#include <map>

#include "libpasses/clean/clean_parts.h"

namespace sg::clean_parts {

size_t merge_constants(Scope& scope) {
  Graph& graph = scope.graph;
  std::map<std::pair<StrId, TypeId>, ValueId> first;
  size_t changes = 0;
  for (const Input& input : graph.inputs()) {
    if (input.kind != InputKind::constant || !input.digest) continue;
    const auto [it, is_new] = first.emplace(std::pair(input.digest, graph.value(input.value).type), input.value);
    if (is_new) continue;
    for (NodeId user : graph.users(input.value)) {
      scope.tally.add(
          Kind::constant, graph, user,
          "takes %" + std::string(graph.name(it->second)) + ", which is %" + std::string(graph.name(input.value)));
      graph.replace_uses_in(user, input.value, it->second);
      ++changes;
    }
  }
  return changes;
}

}  // namespace sg::clean_parts
