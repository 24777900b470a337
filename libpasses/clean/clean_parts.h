// The parts of sg-clean. Each examines one graph, changes it, and returns how many changes it made. Internal to the
// pass.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "libgraph/op.h"
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

// What has been done so far, and with --explain to which nodes.
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

// Merges values that are the same view of the same memory, and removes copies that are indistinguishable from their
// source.
size_t merge_identities(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule);

// Merges chains of views.
size_t shorten_chains(Scope& scope, const AliasAnalysis& alias);

// Merges constants with equal data.
size_t merge_constants(Scope& scope);

size_t merge_common(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule);

size_t fold_sizes(Scope& scope);

// Reads each size from the first node that provides it: a later read would keep a tensor in memory only for its shape.
size_t merge_sizes(Scope& scope);

// Folds casts of half-precision values into the softmax that follows.
size_t fold_casts(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule);
bool fold_cast_into(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule, NodeId softmax);

// Whether a node converts its operand to another type and changes nothing else.
bool is_cast(const Graph& graph, NodeId n);
// Whether it is a view of its first operand, in the type that it has.
bool is_typed_view(const Graph& graph, NodeId n);

// Folds log-softmax and nll_loss into one op.
size_t fold_losses(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule);
// The log-softmaxes that are not folded, each a line that says why.
std::vector<std::string> losses_left(Scope& scope);

size_t make_functional(Scope& scope, const AliasAnalysis& alias);

// `uses` describes the program before anything was removed; symbols it calls used may have become unused.
size_t remove_dead(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule, const SymbolUses& uses,
                   bool drop_asserts);

// Removes symbols and guards that nothing in the program mentions.
size_t remove_symbols(Program* program, Tally* tally);

// Covers the main graphs of all programs: a collective must be removed on all ranks.
size_t remove_collectives(Job* job, Tally* tally);

// Whether this node is an intentional copy or chunk, made by a pass or the capture.
bool is_deliberate_copy(const Graph& graph, NodeId n);

}  // namespace sg::clean_parts
