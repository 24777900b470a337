// AxisCall: one node as an axis rule sees it: operands with their states in, states of the results out.
//
// A rule is a proof: it gives a result state only where the chunks' results, put together as the state says, are what
// the whole node gives (for sums: up to the order of addition). What it cannot prove it refuses with a sentence that
// names the rule. It may want an operand in another form: a whole value sliced to the chunk's rows, a constant at the
// size of the chunk.
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

// A literal size in the arguments of a node: item `item` of argument `arg` (none = the argument itself) is `along` as
// the chunk has it.
struct SizeEdit {
  uint32_t arg = 0;
  std::optional<uint32_t> item;
  Along along;
};

// An operand that is whole, and sliced for this node.
struct SliceWish {
  ValueId value;
  Along along;
};

// An argument that the copies have another literal in.
struct WordEdit {
  uint32_t arg = 0;
  Arg word;
};

// How a result that is whole for everybody behind it is put together at once.
enum class Settle : uint8_t {
  none,   // it is not: its state says what the chunks are
  first,  // the same in every chunk
  sum,
  quotient,  // the sum of the chunks, divided by the sum of the next result's
};

// What the rules of one program share.
struct AxisWorld {
  std::vector<AxisDomain> domains;
  std::vector<AxisState> states;  // by value: as it is made
  std::vector<bool> settled;      // by value: a sum over chunks that a later node needed whole; whole from there on
  std::vector<ValueId>
      equal;  // by value: the first that is equal whatever the inputs are (recomputed values: their originals)
  std::vector<CountTable> tables;  // each once
  std::unordered_map<ValueId, std::vector<uint32_t>, IdHash> tables_by_keys;
  std::vector<AxisState> seeds;  // by value: live-ins of the region at hand that are sliced from the start; else whole

  AxisState& state(ValueId v) { return states[v.index]; }
  const AxisState& state_now(ValueId v) const {
    static const AxisState kWhole;
    return !settled.empty() && settled[v.index] ? kWhole : states[v.index];
  }
  // Whether a chunk is one block of the axis.
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

  // --- arguments, by the schema's names ---
  const Arg* find(std::string_view name) const;  // null when it is left out or None
  ValueId tensor(std::string_view name) const;   // none when it is not given
  std::vector<ValueId> tensors() const;          // all tensor operands, in order, each as often as it occurs
  std::optional<int64_t> integer(std::string_view name) const;  // a literal
  int64_t integer(std::string_view name, int64_t fallback) const { return integer(name).value_or(fallback); }
  bool boolean(std::string_view name, bool fallback) const;
  std::optional<std::vector<int64_t>> integers(std::string_view name) const;  // of literals; a number is a list of one

  const AxisState& state(ValueId v) const;  // as this node sees it
  const AxisState* along(ValueId v) const;  // null when it is none or not along
  bool is_whole(ValueId v) const;           // none is whole; constants are
  const Type& type(ValueId v) const { return graph.type(v); }
  size_t rank(ValueId v) const { return type(v).shape.size(); }
  const AxisDomain& domain(const Along& a) const { return world.domains[a.domain]; }
  Expr extent(const Along& a) const;                 // of the whole axis
  bool is_as_long(Expr size, Expr wanted) const;     // by a guard, where symbols differ
  bool is_as_long(ValueId v, const Along& a) const;  // as its axis `a.axis` is
  ValueId result(uint32_t i) const { return node.result(i); }
  std::optional<size_t> wrap(int64_t dim, size_t rank) const;
  std::optional<size_t> dim(std::string_view name, size_t rank, int64_t fallback) const;

  // The first operand along an axis; fails when there is none.
  Result<ValueId> first_along() const;

  // --- wishes ---
  // `v` is to be seen along `a`: it is, or it is whole and can be sliced, or a constant.
  Status want(ValueId v, const Along& a);
  Status want_whole(ValueId v, std::string_view what);
  // Size literals of the list argument `name` that say how long the chunked axis of a result is.
  Status edit_size(std::string_view name, size_t item, const Along& a);

  // --- results ---
  Status give(AxisState s) { return given.push_back(std::move(s)), ok_status(); }
  Status give_along(const Along& a) { return give(along_state(a)); }
  Status give_all(const AxisState& s);  // every result that is not given yet
  Status give_settled(Settle how);      // whole from here on; what nobody reads, as it comes
  Status edit_word(std::string_view name, Arg word);

  Error fail(std::string message) const;

  AxisWorld& world;
  const Program& program;
  const Graph& graph;
  ExprPool& exprs;
  NodeId id;
  const Node& node;
  const OpInfo& op;  // REQUIRES: a row
  std::vector<AxisState> given;
  std::vector<SizeEdit> edits;
  std::vector<SliceWish> slices;
  std::vector<std::pair<ValueId, AxisState>> constants;  // fills and iotas, to be made at the size of a chunk
  bool accumulates = false;  // adds a partial value to a whole one in place: the chunks one after the other
  std::vector<WordEdit> words;
  std::vector<Settle> settles;  // by result; may be shorter
  std::optional<Along> share;   // results are those of the copy times the chunk's share of these rows: means
  // Whether copies of the node with other operands and sizes are all that it takes: no words, weights, results put
  // together.
  bool is_plain() const { return words.empty() && settles.empty() && !share; }

 private:
  std::vector<const Arg*> bound_;
};

// "the batch axis ..." in refusals: "%x : axis 1 of f32[4, 8, 16]".
std::string describe(const AxisCall& call, ValueId v);

}  // namespace sg
