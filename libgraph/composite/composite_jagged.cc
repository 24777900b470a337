// PyTorch's jagged layout: padded to one length, and back.
#include "libgraph/composite/composite_jagged.h"

namespace sg::composite {

Pieces pieces_of(CompositeCall& c, ValueId offsets) {
  if (c.failed() || c.rank(offsets) != 1) return c.fail("needs offsets of one axis"), Pieces{};
  const Expr ends = c.extent(offsets, 0);
  const Arg count = c.as_arg(c.exprs().sub(ends, c.exprs().constant(1)));
  const ValueId starts = c.make("slice.Tensor", {offsets, 0, 0, count});
  return {starts, c.make("sub.Tensor", {c.make("slice.Tensor", {offsets, 0, 1, c.as_arg(ends)}), starts})};
}

ValueId counted_to(CompositeCall& c, Arg count, ValueId beside) {
  return c.make("arange", {std::move(count), c.key("dtype", DType::i64),
                           c.key("device", Arg::text(ArgKind::device, c.type(beside).device))});
}

ValueId padded(CompositeCall& c, ValueId rows, const Pieces& pieces, Arg length, PartArg filler) {
  if (c.failed()) return {};
  if (c.is_size(rows, 0, 0)) {  // nothing to read, not even in place of padding
    ArgList shape = c.shape(rows);
    shape[0] = std::move(length);
    shape.insert(shape.begin(), c.size(pieces.starts, 0));
    return c.make("new_full", {rows, shape, std::move(filler)});
  }
  const ValueId place = counted_to(c, std::move(length), rows);
  const ValueId beyond = c.make("ge.Tensor", {place, c.make("unsqueeze", {pieces.lengths, 1})});
  ValueId row = c.make("add.Tensor", {c.make("unsqueeze", {pieces.starts, 1}), place});
  row = c.make("masked_fill.Scalar", {row, beyond, 0});
  if (c.failed()) return {};
  ArgList shape = c.shape(beyond);
  shape.resize(static_cast<size_t>(c.rank(rows)) + 1, Arg::integer(1));
  const ValueId found = c.make("index.Tensor", {rows, Values{row}});
  return c.make("masked_fill.Scalar", {found, c.make("view", {beyond, shape}), std::move(filler)});
}

namespace {

// Each row of piece `piece`, by its place there.
ValueId rows_of(CompositeCall& c, ValueId padded, const Pieces& pieces, ValueId piece) {
  const ValueId start = c.make("index.Tensor", {pieces.starts, Values{piece}});
  if (c.failed()) return {};
  const ValueId place = c.make("sub.Tensor", {counted_to(c, c.size(piece, 0), padded), start});
  return c.make("contiguous", {c.make("index.Tensor", {padded, Values{piece, place}})});
}

ValueId only_offsets(CompositeCall& c) {
  const Values offsets = c.tensors("offsets");
  if (offsets.size() != 1) return c.fail("needs offsets of one level"), ValueId();
  return offsets[0];
}

}  // namespace

ValueId unpadded(CompositeCall& c, ValueId padded, const Pieces& pieces, Arg count) {
  if (c.failed()) return {};
  return rows_of(c, padded, pieces,
                 c.make("repeat_interleave.Tensor", {pieces.lengths, c.key("output_size", std::move(count))}));
}

void jagged_to_padded(CompositeCall& c) {
  const Pieces pieces = pieces_of(c, only_offsets(c));
  const ArgList lengths = c.sizes("max_lengths");
  if (lengths.size() != 1) return c.fail("needs one length");
  c.give(padded(c, c.tensor("values"), pieces, lengths[0], c.arg("padding_value")));
}

void padded_to_jagged(CompositeCall& c) {
  const ValueId dense = c.tensor("dense");
  const Pieces pieces = pieces_of(c, only_offsets(c));
  if (c.failed()) return;
  if (c.has("total_L")) return c.give(unpadded(c, dense, pieces, c.arg("total_L")));
  Type found = c.recorded(0);
  if (found.kind != TypeKind::tensor || found.shape.empty()) return c.fail("the number of rows has no symbol");
  found.dtype = c.dtype_of(pieces.lengths), found.offset = c.exprs().constant(0);
  found.shape.resize(1);
  found.stride = {c.exprs().constant(1)};
  c.give(rows_of(c, dense, pieces, c.make_found("repeat_interleave.Tensor", {pieces.lengths}, std::move(found))));
}

}  // namespace sg::composite
