// What of a source's program needs all of its graphs: symbols that nobody declared, types that were left out or made up.
// Internal to source_build.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "libgraph/source_graph.h"

namespace sg {

// The nodes whose types are the source's guess.
class GuessedTypes {
 public:
  void add(const Graph* graph, NodeId n) { nodes_[graph].insert(n.index); }
  bool empty() const { return nodes_.empty(); }
  bool contains(const Graph* graph, NodeId n) const {
    auto it = nodes_.find(graph);
    return it != nodes_.end() && it->second.contains(n.index);
  }

 private:
  std::unordered_map<const Graph*, std::unordered_set<uint32_t>> nodes_;   // never walked
};

// The source's symbols and guards; then each symbol that guards, types and arguments mention beyond them, in the order
// in which they do.
void declare_symbols(const SourceProgram& source, Pool* pool, Program* program);

// Infers what is not known. A guess is replaced by what is inferred where element type and shape agree.
void settle_types(Program* program, const GuessedTypes& guessed);

}  // namespace sg
