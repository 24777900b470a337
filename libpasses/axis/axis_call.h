// AxisCall: one node as an axis rule sees it: operands with their states in, states of the results out.
//
// A rule is a proof: it returns a result state only if the chunks' results, combined as the state says, equal the
// result of the whole node (for sums: up to the order of addition). What it cannot prove it refuses, with a sentence
// that names the rule. A rule may ask for an operand in another form: a whole value sliced to the chunk's rows, or a
// constant created at the chunk's size.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libgraph/job.h"
#include "libgraph/op.h"
#include "libpasses/axis/axis_state.h"
#include "libpasses/axis/count_table.h"

namespace sg {

// A literal size in a node's arguments that the copies replace by the chunk's length of `along`: item `item` of
// argument `arg` (none = the argument itself).
struct SizeEdit {
  uint32_t arg = 0;
  std::optional<uint32_t> item;
  Along along;
};

// An operand that is whole and is sliced for this node.
struct SliceWish {
  ValueId value;
  Along along;
};

// Beside a refusal: it would be none if the rows of the domain of `rows` rows were cut at multiples of `together`.
struct RowsTogether {
  Expr rows, together;
};

// An argument whose literal the copies replace.
struct WordEdit {
  uint32_t arg = 0;
  Arg word;
};

// How the chunks of a result that is whole for all later nodes are combined immediately.
enum class Settle : uint8_t {
  none,   // not combined: its state says what the chunks are
  first,  // the same in every chunk
  sum,
  quotient,  // the sum over chunks, divided by the sum over chunks of the next result
};

// Shared by the rules of one program.
struct AxisWorld {
  std::vector<AxisDomain> domains;
  std::vector<AxisState> states;  // by value: state as produced
  std::vector<bool> settled;      // by value: a sum over chunks that a later node needs whole; whole from there on
  std::vector<ValueId>
      equal;  // by value: the first value that is equal for all inputs (recomputed values: their originals)
  std::vector<CountTable> tables;  // without duplicates
  std::unordered_map<ValueId, std::vector<uint32_t>, IdHash> tables_by_keys;
  std::vector<AxisState> seeds;  // by value: live-ins of the current region that start sliced; all others are whole

  AxisState& state(ValueId v) { return states[v.index]; }
  const AxisState& state_now(ValueId v) const {
    static const AxisState kWhole;
    return !settled.empty() && settled[v.index] ? kWhole : states[v.index];
  }
  // Whether a chunk is one contiguous block of the axis.
  bool is_block(const Along& a) const { return domains[a.domain].is_rows && !a.runs; }
  uint32_t add_table(CountTable table) {
    std::vector<uint32_t>& known = tables_by_keys[table.source.keys];
    for (uint32_t at : known)
      if (tables[at] == table) return at;
    known.push_back(static_cast<uint32_t>(tables.size()));
    tables.push_back(std::move(table));
    return known.back();
  }
  uint32_t add_domain(AxisDomain domain) {
    domains.push_back(std::move(domain));
    return static_cast<uint32_t>(domains.size() - 1);
  }
};

class AxisCall {
 public:
  AxisCall(AxisWorld* world, const Program& program, NodeId n);

  // --- arguments, by their name in the schema ---
  const Arg* find(std::string_view name) const;                 // null if omitted or None
  ValueId tensor(std::string_view name) const;                  // none if not given
  std::vector<ValueId> tensors() const;                         // all tensor operands, in order, with repetitions
  std::optional<int64_t> integer(std::string_view name) const;  // a literal
  int64_t integer(std::string_view name, int64_t fallback) const { return integer(name).value_or(fallback); }
  bool boolean(std::string_view name, bool fallback) const;
  std::optional<std::vector<int64_t>> integers(std::string_view name) const;  // of literals; a number is a list of one

  const AxisState& state(ValueId v) const;  // as this node sees it
  const AxisState* along(ValueId v) const;  // null if there is no operand, or its kind is not along
  bool is_whole(ValueId v) const;           // true for no operand, and for constants
  const Type& type(ValueId v) const { return graph.type(v); }
  size_t rank(ValueId v) const { return type(v).shape.size(); }
  const AxisDomain& domain(const Along& a) const { return world.domains[a.domain]; }
  Expr extent(const Along& a) const;                 // length of the whole axis
  bool is_as_long(Expr size, Expr wanted) const;     // equal, by a guard if the symbols differ
  bool is_as_long(ValueId v, const Along& a) const;  // the same of `v`'s axis `a.axis`
  ValueId result(uint32_t i) const { return node.result(i); }
  std::optional<size_t> wrap(int64_t dim, size_t rank) const;
  std::optional<size_t> dim(std::string_view name, size_t rank, int64_t fallback) const;

  // The first operand of kind along; fails if there is none.
  Result<ValueId> first_along() const;

  // --- wishes ---
  // Asks for `v` along `a`: it is so already, or it is whole and can be sliced, or it is a constant.
  Status want(ValueId v, const Along& a);
  Status want_whole(ValueId v, std::string_view what);
  // Replaces the size literal in argument `name` that gives the length of a result's chunked axis.
  Status edit_size(std::string_view name, size_t item, const Along& a);

  // --- results ---
  Status give(AxisState s);  // for the next result; one that was not asked for (type none) has none
  Status give_along(const Along& a) { return give(along_state(a)); }
  Status give_all(const AxisState& s);  // for every result that has no state yet
  Status give_settled(Settle how);      // whole from here on; an unused result is not combined
  Status edit_word(std::string_view name, Arg word);

  Error fail(std::string message) const;
  // Beside a refusal: the axes meet if the finer one's rows are cut at the other's entries.
  void want_to_meet(const Along& a, const Along& b);

  AxisWorld& world;
  const Program& program;
  const Graph& graph;
  ExprPool& exprs;
  NodeId id;
  const Node& node;
  const OpInfo& op;  // REQUIRES: the op has a row in op.def
  std::vector<AxisState> given;
  std::vector<SizeEdit> edits;
  std::vector<SliceWish> slices;
  std::vector<std::pair<ValueId, AxisState>> constants;  // fills and iotas to create at the chunk's size
  bool accumulates = false;  // adds a partial value to a whole one in place, chunk after chunk
  std::vector<WordEdit> words;
  std::vector<Settle> settles;  // by result; may be shorter
  std::optional<Along> share;   // results are means: weight each copy's result by the chunk's share of these rows
  std::optional<RowsTogether> wanted_together;  // of a rule that fails
  // Whether copying the node with other operands and sizes suffices: no replaced words, combined results or weights.
  bool is_plain() const { return words.empty() && settles.empty() && !share; }

 private:
  std::vector<const Arg*> bound_;
};

// For refusals: describes the state of `v`, e.g. "%x is chunked along axis 1".
std::string describe(const AxisCall& call, ValueId v);

}  // namespace sg
