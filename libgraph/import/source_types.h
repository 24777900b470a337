// What of a source's program needs all of its graphs: symbols that nobody declared, types that were left out or made
// up. Internal to source_build.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "libgraph/import/import_tally.h"
#include "libgraph/import/source_graph.h"

namespace sg {

// What of a node's types is the source's guess.
enum class Guess : uint8_t { none, offset, layout };

class GuessedTypes {
 public:
  void add(const Graph* graph, NodeId n, Guess guess) { nodes_[graph].emplace(n.index, guess); }
  bool empty() const { return nodes_.empty(); }
  Guess of(const Graph* graph, NodeId n) const {
    auto it = nodes_.find(graph);
    if (it == nodes_.end()) return Guess::none;
    auto node = it->second.find(n.index);
    return node == it->second.end() ? Guess::none : node->second;
  }

 private:
  std::unordered_map<const Graph*, std::unordered_map<uint32_t, Guess>> nodes_;  // never walked
};

// The source's symbols and guards; then each symbol that guards, types and arguments mention beyond them, in the order
// in which they do, with the range that PyTorch compiles for: sizes of inputs are 2 or more, others not negative.
void declare_symbols(const SourceProgram& source, Pool* pool, Program* program);

// Infers what is not known, and takes composites apart. A guess is replaced by what is inferred where element type and
// shape may agree; what the source says beside it stays.
void settle_types(Program* program, bool rank_local, const GuessedTypes& guessed, ImportTally* tally);

}  // namespace sg
