// The parts of sg-clean. Each looks at one graph as it stands and changes it; it returns how many changes it made.
// Internal to the pass.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "libgraph/op.h"
#include "libpasses/clean.h"
#include "libpasses/schedule.h"

namespace sg::clean_parts {

enum class Kind : uint8_t { identity, copy, common, functional, size, unshard, dead };
constexpr size_t kKinds = 7;

// What was done so far, and with --explain to what.
struct Tally {
  std::array<size_t, kKinds> counts{};
  bool keep_lines = false;
  std::vector<std::string> lines;

  void add(Kind kind, const Graph& graph, NodeId n, const std::string& why);
  size_t total() const;
};

struct Scope {
  const Program& program;
  Graph& graph;
  Tally& tally;
};

// Values that hold the same memory, seen in the same way, are one; copies that nobody can tell apart from what they copy go.
size_t merge_identities(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule);

size_t merge_common(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule);

size_t fold_sizes(Scope& scope);

size_t make_functional(Scope& scope, const AliasAnalysis& alias);

size_t remove_dead(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule, bool drop_asserts);

// Over the main graphs of all programs: what goes must go on all ranks.
size_t remove_collectives(Job* job, Tally* tally);

// Whether this node is a copy or a chunk made by a pass or the capture: it is there on purpose.
bool is_deliberate_copy(const Graph& graph, NodeId n);

}  // namespace sg::clean_parts
