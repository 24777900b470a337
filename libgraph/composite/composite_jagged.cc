// Rows of unlike lengths, one after another (PyTorch's jagged layout), and the same padded to one length. `offsets` says
// where each piece begins and the last one ends.
#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

struct Pieces {
  ValueId starts, lengths;
};

Pieces pieces_of(CompositeCall& c) {
  const Values offsets = c.tensors("offsets");
  if (offsets.size() != 1 || c.rank(offsets[0]) != 1) return c.fail("needs offsets of one level"), Pieces{};
  const Expr ends = c.extent(offsets[0], 0);
  const Arg count = c.as_arg(c.exprs().sub(ends, c.exprs().constant(1)));
  const ValueId starts = c.make("slice.Tensor", {offsets[0], 0, 0, count});
  return {starts, c.make("sub.Tensor", {c.make("slice.Tensor", {offsets[0], 0, 1, c.as_arg(ends)}), starts})};
}

ValueId counted_to(CompositeCall& c, Arg count, ValueId beside) {
  return c.make("arange", {std::move(count), c.key("dtype", DType::i64),
                           c.key("device", Arg::text(ArgKind::device, c.type(beside).device))});
}

}  // namespace

// What a piece has beyond max_lengths is left out, as in PyTorch.
void jagged_to_padded(CompositeCall& c) {
  const ValueId values = c.tensor("values");
  const Pieces pieces = pieces_of(c);
  const ArgList lengths = c.sizes("max_lengths");
  if (lengths.size() != 1) return c.fail("needs one length");
  if (c.is_size(values, 0, 0)) {  // nothing to read, not even in place of padding
    ArgList shape = c.shape(values);
    shape[0] = lengths[0];
    shape.insert(shape.begin(), c.size(pieces.starts, 0));
    return c.give(c.make("new_full", {values, shape, c.arg("padding_value")}));
  }
  const ValueId place = counted_to(c, lengths[0], values);
  const ValueId beyond = c.make("ge.Tensor", {place, c.make("unsqueeze", {pieces.lengths, 1})});
  ValueId row = c.make("add.Tensor", {c.make("unsqueeze", {pieces.starts, 1}), place});
  row = c.make("masked_fill.Scalar", {row, beyond, 0});
  ArgList shape{c.size(beyond, 0), c.size(beyond, 1)};
  shape.resize(static_cast<size_t>(c.rank(values)) + 1, Arg::integer(1));
  const ValueId rows = c.make("index.Tensor", {values, Values{row}});
  c.give(c.make("masked_fill.Scalar", {rows, c.make("view", {beyond, shape}), c.arg("padding_value")}));
}

// Pieces must fit into the padded length, and give as many rows as are asked for: else an index is out of range.
void padded_to_jagged(CompositeCall& c) {
  const ValueId dense = c.tensor("dense");
  const Pieces pieces = pieces_of(c);
  if (c.failed()) return;
  ValueId piece;
  if (c.has("total_L")) {
    piece = c.make("repeat_interleave.Tensor", {pieces.lengths, c.key("output_size", c.arg("total_L"))});
  } else {
    Type found = c.recorded(0);
    if (found.kind != TypeKind::tensor || found.shape.empty()) return c.fail("the number of rows has no symbol");
    found.dtype = c.dtype_of(pieces.lengths), found.offset = c.exprs().constant(0);
    found.shape.resize(1);
    found.stride = {c.exprs().constant(1)};
    piece = c.make_found("repeat_interleave.Tensor", {pieces.lengths}, std::move(found));
  }
  const ValueId start = c.make("index.Tensor", {pieces.starts, Values{piece}});
  const ValueId place = c.make("sub.Tensor", {counted_to(c, c.size(piece, 0), dense), start});
  c.give(c.make("contiguous", {c.make("index.Tensor", {dense, Values{piece, place}})}));
}

}  // namespace sg::composite
