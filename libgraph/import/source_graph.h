// SourceProgram: a graph as a source tells it, before it is the IR. What every importer but that of captures (which is
// made for millions of nodes) fills in, and `build_program` (source_build.h) turns into a Program.
//
// Interned  Strings, types, expressions, source lines and metadata live in the Pool of the job that is being made, so a
//           reader makes them once and nothing is copied.
// Names     Nodes refer to names, not to ids: a reader need not know what is defined, or in which order.
// Places    Two numbers that mean what the source likes: line and column, or node and argument. Only a message asks the
//           source what a place is called.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "libgraph/import/computed_sizes.h"
#include "libgraph/job.h"

namespace sg {

struct SourcePlace {
  uint32_t a = 0, b = 0;
};

// A use of a name.
struct SourceRef {
  StrId name;
  SourcePlace place;
};

struct SourceInput {
  SourcePlace place;
  StrId name;
  TypeId type = Pool::kUnknownType;
  Input input;  // all but `value`
};

// What is known of a node's results.
struct SourceResults {
  // nothing: the op returns no value. One: a value. Tuple: a tuple or list, even of one. Unknown: the op table decides,
  // or else the uses: getitems make it a tuple, other uses one value.
  enum class Shape : uint8_t { unknown, nothing, one, tuple };
  Shape shape = Shape::unknown;
  std::vector<TypeId> types;  // one, or those of a tuple; kUnknownType where the source does not say
  std::vector<StrId> names;   // of a tuple's results; none = called after the node. May be empty
  // The types are made up where the source left something out (strides): what is inferred goes before them as long as
  // element type and shape agree.
  bool is_guess = false;
  bool offset_is_guess = false;  // only the storage offsets are
};

struct SourceNode {
  SourcePlace place;
  StrId name;  // none = called after the first result, or the op
  StrId op;    // "aten.mm.default", as the op table spells it
  // Positional first, then those with a key. An argument of kind `value` holds an index into `refs`, not a ValueId; one
  // of kind `graph` an index into SourceProgram::nested. A reference to a tuple stands for the list of its results.
  std::vector<Arg> args;
  std::vector<SourceRef> refs;
  SourceResults results;
  Phase phase = Phase::forward;
  StrId module;
  SourceId source;
  NodeMeta meta;                // `random` and `binds` are the builder's
  std::optional<uint64_t> seq;  // links a backward node to the first forward node of that number
};

struct SourceOutput {
  SourceRef value;  // name none = no value
  Output output;    // all but `value`, `of` and `of_name`
  StrId of;         // the input it belongs to, by name or FQN; none = not said
};

struct SourceGraph {
  std::vector<SourceInput> inputs;
  std::vector<SourceNode> nodes;  // in the order in which they run
  std::vector<SourceOutput> outputs;
};

struct SourceNested {
  SourcePlace place;
  StrId name;  // unique; the builder does not rename
  SourceGraph graph;
};

struct SourceProgram {
  std::vector<Symbol> symbols;  // those that types, arguments and guards mention beyond these are declared too
  std::vector<Guard> guards;
  // What is known of symbols that the graph may not mention: counts where it does.
  std::vector<Symbol> known_symbols;
  std::vector<Guard> known_guards;
  std::vector<ComputedSize> computed;
  SourceGraph graph;
  std::vector<SourceNested> nested;
  std::function<Location(SourcePlace)> where;
};

}  // namespace sg
