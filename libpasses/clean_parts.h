// The parts of sg-clean. Each looks at one graph as it stands and changes it; it returns how many changes it made.
// Internal to the pass.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "libgraph/alias.h"
#include "libgraph/op.h"
#include "libpasses/clean.h"

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

// Where each piece of memory is read and written last, by schedule position; and where nodes stand.
class Schedule {
 public:
  Schedule(const Graph& graph, const AliasAnalysis& alias);
  uint32_t position(NodeId n) const { return position_[n.index]; }
  uint32_t position_of_def(ValueId v) const;            // 0 for inputs; nodes begin at 1
  bool is_written(uint32_t alias_class) const { return !writes_[alias_class].empty(); }
  bool is_written_between(uint32_t alias_class, uint32_t after, uint32_t before) const;   // after < position < before
  bool is_written_after(uint32_t alias_class, uint32_t after) const;
  uint32_t last_read(uint32_t alias_class) const { return last_read_[alias_class]; }      // 0 = never
  uint32_t last_use(uint32_t alias_class) const { return last_use_[alias_class]; }        // of a value in it; UINT32_MAX: an output

 private:
  const Graph& graph_;
  std::vector<uint32_t> position_;
  std::vector<std::vector<uint32_t>> writes_;           // by class; ascending
  std::vector<uint32_t> last_read_, last_use_;          // by class
};

struct Scope {
  const Program& program;
  Graph& graph;
  Tally& tally;
};

// The value's class; kNoClass when it has no memory.
constexpr uint32_t kNoClass = 0xFFFFFFFFu;
uint32_t class_of(const AliasAnalysis& alias, ValueId v);

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
