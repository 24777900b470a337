// AxisState: what a value of a step becomes when a region is run once for each chunk of its rows.
//
// whole      the same in every chunk: not copied
// constant   a fill (zeros, empty): whole, until an op wants it at the size of a chunk
// iota       0, 1, 2, ...: whole, until a sort's positions are inverted with it
// along      one axis enumerates the entries of a domain; chunk c holds the entries that are its own
// partial    the chunks' values add up to the whole
// size       a size or count on the host that each chunk has a value of its own for
//
// A domain is what a chunked axis enumerates:
//   rows   the axis that was cut. Chunk c is one block; whole values can be sliced to it, chunks concatenated
//   items  what the data decides: rows in the order of a sort, or as an exchange delivered them. Each chunk holds its
//          own rows' items in an order of its own: they can be reduced, and brought back to rows, but neither sliced
//          nor concatenated
// `unit` entries of the axis belong to each entry of the domain ([batch, length] seen as [batch * length] has unit
// `length`). An axis that was merged behind others comes in runs ([length, batch] seen as [length * batch] has `length`
// runs of the batch): a chunk has its own entries of each run, one run after the other. Ops that take each entry alone,
// or add up all of them, take runs.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/graph.h"

namespace sg {

constexpr uint32_t kNoDomain = 0xFFFFFFFFu;

constexpr uint32_t kNoTable = 0xFFFFFFFFu;

// Where a number that the data decides comes from: counting or sorting `keys` of the region. `received`: by way of an
// exchange of the counts in equal parts among so many ranks of a group.
struct KeySource {
  ValueId keys;
  bool received = false;
  int64_t ranks = 0;
  GroupId group;
  bool is_none() const { return keys.is_none(); }
  friend bool operator==(const KeySource&, const KeySource&) = default;
};

struct Along {
  uint32_t domain = kNoDomain;
  uint32_t axis = 0;
  Expr unit;
  Expr runs;  // none = one
  Along one_run() const { return {domain, axis, unit, Expr()}; }
  // How long the axis is for so many entries of the domain.
  Expr length(ExprPool* exprs, Expr entries) const {
    const Expr run = exprs->mul(unit, entries);
    return runs ? exprs->mul(runs, run) : run;
  }
  friend bool operator==(const Along&, const Along&) = default;
};

struct AxisDomain {
  Expr size;  // of the whole
  bool is_rows = true;
  Along sorted;                 // items of a sort: the entries that were sorted
  KeySource source;             // items: what they are sorted by
  uint32_t layout = kNoTable;   // items: how many of each part there are, in order; of a sort: its keys', ascending
  uint32_t of = kNoDomain;      // items in an order of their own: those of this domain, part by part
  uint32_t before = kNoDomain;  // items of an exchange: those that were sent
  std::vector<Expr> sent, received;  // its split sizes
  GroupId group;
};

// What a number along items is made of: of the part that the item lies in, and of its place among all.
struct PartForm {
  bool part = false;                           // the number of its part
  bool place = false;                          // 0, 1, 2, ...
  uint32_t plus = kNoTable, minus = kNoTable;  // what these tables have for its part
  bool is_none() const { return !part && !place && plus == kNoTable && minus == kNoTable; }
  friend bool operator==(const PartForm&, const PartForm&) = default;
};

enum class AxisKind : uint8_t { whole, constant, iota, along, partial, size };

struct AxisState {
  AxisKind kind = AxisKind::whole;
  Along along;  // kind along; of kind size only the domain it counts, if one
  // Numbers that mean something within their chunk only: positions and what is computed from them.
  bool local = false;
  uint32_t target = kNoDomain;  // local: positions in `target_unit` entries of this domain; none = not known
  Expr target_unit;
  KeySource source;           // partial counts, sizes, local numbers: what they count
  uint32_t table = kNoTable;  // partial counts, and sizes read from them: which counts, in which order
  uint32_t cell = kNoTable;   // one element of the table
  PartForm form;              // local numbers along items
  bool common = false;        // kind size: read from a chunk, and the same in all of them
  ValueId marks;              // along: marks (one-hot) the classes of these keys

  bool is_own_size() const { return kind == AxisKind::size && !common; }
  bool is_chunked() const { return kind == AxisKind::along || kind == AxisKind::partial || kind == AxisKind::size; }
};

inline AxisState along_state(Along a) {
  AxisState out;
  out.kind = AxisKind::along;
  out.along = a;
  return out;
}

}  // namespace sg
