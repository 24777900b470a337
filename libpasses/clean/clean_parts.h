// The parts of sg-clean. Each looks at one graph as it stands and changes it; it returns how many changes it made.
// Internal to the pass.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "libgraph/op.h"
#include "libpasses/clean/clean.h"
#include "libpasses/schedule.h"
#include "libpasses/symbol_uses.h"

namespace sg::clean_parts {

enum class Kind : uint8_t {
  identity,
  copy,
  chain,
  constant,
  common,
  functional,
  size,
  cast,
  loss,
  unshard,
  dead,
  symbol
};
constexpr size_t kKinds = 12;

// What was done so far, and with --explain to what.
struct Tally {
  std::array<size_t, kKinds> counts{};
  bool keep_lines = false;
  std::vector<std::string> lines;

  void add(Kind kind, const Graph& graph, NodeId n, const std::string& why);
  void add(Kind kind, const std::string& line);
  size_t total() const;
};

struct Scope {
  const Program& program;
  Graph& graph;
  Tally& tally;
};

// Values that hold the same memory, seen in the same way, are one; copies that nobody can tell apart from what they
// copy go.
size_t merge_identities(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule);

// Views of views as one view.
size_t shorten_chains(Scope& scope, const AliasAnalysis& alias);

// Constants with the same data.
size_t merge_constants(Scope& scope);

size_t merge_common(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule);

size_t fold_sizes(Scope& scope);

// A size is read once, by the first node that says it: a later one would keep a tensor in memory to look at its shape.
size_t merge_sizes(Scope& scope);

// Casts of halves as part of the softmax behind them.
size_t fold_casts(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule);
bool fold_cast_into(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule, NodeId softmax);

// Whether a node makes one type of another, and changes nothing else.
bool is_cast(const Graph& graph, NodeId n);
// Whether it shows its first operand, in the type that it has.
bool is_typed_view(const Graph& graph, NodeId n);

// Log-softmax and nll_loss as one op.
size_t fold_losses(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule);

size_t make_functional(Scope& scope, const AliasAnalysis& alias);

// `uses` is of the program before anything was removed: what it says is used may be so no more.
size_t remove_dead(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule, const SymbolUses& uses,
                   bool drop_asserts);

// Symbols and guards of a program that nothing speaks of.
size_t remove_symbols(Program* program, Tally* tally);

// Over the main graphs of all programs: what goes must go on all ranks.
size_t remove_collectives(Job* job, Tally* tally);

// Whether this node is a copy or a chunk made by a pass or the capture: it is there on purpose.
bool is_deliberate_copy(const Graph& graph, NodeId n);

}  // namespace sg::clean_parts
