// Graphs of repeated layers, and the same with planted edits: for tests of the diff that know what was done.
//
// Every node has an identity that edits keep; its name is "n<identity>" unless it was renamed. All values are f32[8,
// 8], so that whatever is rewired stays valid.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "libgraph/job.h"
#include "tests/support/rng.h"

namespace sg::test {

struct GraphSketch {
  static constexpr uint32_t kInput = 0x80000000u;  // operand: input number, not a node's identity
  struct Node {
    uint32_t identity = 0;
    std::string op;                  // "aten.mm.default"
    std::vector<uint32_t> operands;  // identities, or kInput | input
    double literal = 0;              // of ops that take one
    uint32_t layer = 0;
    uint32_t line = 1;  // of the source
    bool backward = false;
    bool renamed = false;
  };
  std::vector<Node> nodes;          // in schedule order
  std::vector<std::string> inputs;  // FQNs; empty = a nameless user input
  std::vector<uint32_t> outputs;    // identities
  uint32_t next_identity = 0;
  uint32_t layer_nodes = 1;  // of the template

  Job job() const;
  size_t position(uint32_t identity) const;  // nodes.size() when there is none
};

// `layers` copies of a random template of `layer_nodes` nodes, each with parameters of its own, one behind the other.
GraphSketch random_sketch(Rng& rng, size_t layers, size_t layer_nodes, size_t inputs_of_layer);
// No layers, no FQNs: `nodes` nodes over `inputs` inputs.
GraphSketch random_small_sketch(Rng& rng, size_t nodes, size_t inputs);

enum class Planted : uint8_t { rename, move, op, literal, operand, meta, line, add, remove, insert, copy };
inline constexpr size_t kPlantedKinds = 11;

// One edit at a random place; false when there is none for it.
bool plant(GraphSketch* sketch, Planted kind, Rng& rng);

// What differs, by the identities: (aspect, identity) pairs by kind; "moved" only counts.
struct TrueEdits {
  // Sorted; kinds: added removed name op attribute operand meta loc.
  std::map<std::string, std::vector<uint32_t>> by_kind;
  size_t moved = 0;
};
TrueEdits true_edits(const GraphSketch& before, const GraphSketch& after);

}  // namespace sg::test
