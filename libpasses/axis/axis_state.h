// AxisState: what a value becomes if a region runs once for each chunk of its rows.
//
// whole      the same in every chunk: not copied
// constant   a fill (zeros, empty): whole, until an op wants it at the chunk's size
// iota       0, 1, 2, ...: whole, until the positions of a sort are inverted with it
// along      one axis enumerates the entries of a domain; chunk c holds its own entries
// partial    the chunks' values add up to the whole
// size       a size or count on the host, with a value per chunk
//
// A domain is what a chunked axis enumerates:
//   rows   the axis that was cut. Chunk c is one block; whole values can be sliced to it, chunks concatenated
//   items  decided by the data: rows in the order of a sort, or as an exchange delivered them. Each chunk holds its
//          own rows' items in an order of its own: they can be reduced, and brought back to rows, but neither sliced
//          nor concatenated
// Each entry of the domain covers `unit` entries of the axis: [batch, length] viewed as [batch * length] has unit
// `length`. An axis merged after others comes in runs: [length, batch] viewed as [length * batch] has `length` runs of
// the batch, and a chunk holds its own entries of each run, one run after the other. Ops that treat entries
// independently, or add up all of them, accept runs.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/graph.h"

namespace sg {

constexpr uint32_t kNoDomain = 0xFFFFFFFFu;

constexpr uint32_t kNoTable = 0xFFFFFFFFu;

// Origin of a data-dependent number: counting or sorting `keys` in the region. `received`: the counts were exchanged in
// equal parts among the `ranks` ranks of `group`.
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
  // Length of the axis for that many entries of the domain.
  Expr length(ExprPool* exprs, Expr entries) const {
    const Expr run = exprs->mul(unit, entries);
    return runs ? exprs->mul(runs, run) : run;
  }
  friend bool operator==(const Along&, const Along&) = default;
};

struct AxisDomain {
  Expr size;  // of the whole domain
  bool is_rows = true;
  Along sorted;                      // items of a sort: the axis that was sorted
  KeySource source;                  // items: the keys that order them
  uint32_t layout = kNoTable;        // items: the size of each part, in order; of a sort: by key, ascending
  uint32_t of = kNoDomain;           // items reordered: they are the items of this domain, part by part
  uint32_t before = kNoDomain;       // items received in an exchange: the domain that was sent
  std::vector<Expr> sent, received;  // split sizes of the exchange
  GroupId group;
};

// How a number along items is composed: from the part that holds the item, and from the item's place among all items.
struct PartForm {
  bool part = false;                           // the number of its part
  bool place = false;                          // 0, 1, 2, ...
  uint32_t plus = kNoTable, minus = kNoTable;  // the entries of these tables for its part
  bool is_none() const { return !part && !place && plus == kNoTable && minus == kNoTable; }
  friend bool operator==(const PartForm&, const PartForm&) = default;
};

enum class AxisKind : uint8_t { whole, constant, iota, along, partial, size };

struct AxisState {
  AxisKind kind = AxisKind::whole;
  Along along;  // kind along; for kind size only the counted domain, if any
  // Numbers that are meaningful only within their chunk: positions and values computed from them.
  bool local = false;
  uint32_t target = kNoDomain;  // local: positions in `target_unit` entries of this domain; none = unknown
  Expr target_unit;
  KeySource source;           // partial counts, sizes, local numbers: what they count
  uint32_t table = kNoTable;  // partial counts, and sizes read from them: which counts, in which order
  uint32_t cell = kNoTable;   // one element of the table
  PartForm form;              // local numbers along items
  bool common = false;        // kind size: read from a chunk, but equal in all chunks
  ValueId marks;              // along: a one-hot mask of the classes of these keys

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
