#include "libpasses/chunk/chunk_join.h"

#include <algorithm>

#include "libpasses/chunk/chunk_layout.h"

namespace sg {

Result<ValueId> ChunkJoiner::sum(const BodyNode& body, ValueId v, const std::vector<ValueId>& parts) {
  std::vector<ValueId> turns = parts;
  if (graph_.node(body.node).phase == Phase::backward) std::ranges::reverse(turns);
  ValueId total = turns[0];
  for (size_t k = 1; k < turns.size(); ++k) {
    SG_ASSIGN(total, add("aten.add.Tensor", {Arg::value(total), Arg::value(turns[k])},
                         std::string(graph_.name(v)) + "_sum", body));
  }
  return lay_out(body, v, total);
}

Result<ValueId> ChunkJoiner::concatenate(const BodyNode& body, ValueId v, std::vector<ValueId> parts, uint32_t axis) {
  const std::string name = std::string(graph_.name(v)) + "_cat";
  Type dense = graph_.type(v);
  const std::vector<Expr> shape = dense.shape;
  const std::vector<uint32_t> repeated = take_repeated_axes(&pool_, &dense, axis);
  for (uint32_t gone : repeated)
    for (ValueId& part : parts) {
      SG_ASSIGN(part, add("aten.slice.Tensor", {Arg::value(part), Arg::integer(gone), Arg::integer(0), Arg::integer(1)},
                          std::string(graph_.name(part)), body));
    }
  const AxisOrder order = axes_in_memory(&pool_, nodes_.program(), dense).value_or(same_order(dense.shape.size()));
  const bool plain = is_identity(order);
  if (!plain)
    for (ValueId& part : parts) {
      SG_ASSIGN(part,
                add("aten.permute.default", {Arg::value(part), axes_arg(order)}, std::string(graph_.name(part)), body));
    }
  std::vector<Arg> list;
  for (ValueId part : parts) list.push_back(Arg::value(part));
  std::vector<Arg> args{Arg::list(std::move(list))};
  if (const uint32_t at = position_in(order, axis); at != 0) args.push_back(Arg::integer(at));
  SG_ASSIGN(ValueId whole, add("aten.cat.default", std::move(args), name, body));
  if (!plain) {
    SG_ASSIGN(whole, add("aten.permute.default", {Arg::value(whole), axes_arg(inverse(order))}, name, body));
  }
  if (!repeated.empty()) {
    SG_ASSIGN(whole, add("aten.expand.default", {Arg::value(whole), nodes_.sizes_arg(shape)}, name, body));
  }
  return lay_out(body, v, whole);
}

Result<ValueId> ChunkJoiner::concatenate_runs(const BodyNode& body, ValueId v, std::vector<ValueId> parts,
                                              const Along& along, const std::vector<Expr>& lengths) {
  std::vector<Arg> list;
  for (size_t c = 0; c < parts.size(); ++c) {
    const std::vector<Expr> apart = nodes_.runs_apart(parts[c], along.axis, along.runs, lengths[c]);
    SG_ASSIGN(const ValueId part, add("aten.reshape.default", {Arg::value(parts[c]), nodes_.sizes_arg(apart)},
                                      std::string(graph_.name(parts[c])), body));
    list.push_back(Arg::value(part));
  }
  const std::string name = std::string(graph_.name(v)) + "_cat";
  SG_ASSIGN(ValueId whole,
            add("aten.cat.default", {Arg::list(std::move(list)), Arg::integer(along.axis + 1)}, name, body));
  SG_ASSIGN(whole, add("aten.view.default", {Arg::value(whole), nodes_.sizes_arg(graph_.type(v).shape)}, name, body));
  return lay_out(body, v, whole);
}

Result<ValueId> ChunkJoiner::lay_out(const BodyNode& body, ValueId v, ValueId whole) {
  if (graph_.value(whole).type == graph_.value(v).type) return whole;
  const Type a = graph_.type(v), b = graph_.type(whole);
  if (a.shape != b.shape || a.dtype != b.dtype)
    return nodes_.fail(
        body.node, "the chunks of %" + std::string(graph_.name(v)) + " put together have another type than the whole");
  if (a.stride == b.stride) return whole;
  for (size_t i = 0; i < a.shape.size(); ++i)
    if (pool_.exprs.constant_value(a.stride[i]) == 0 && pool_.exprs.constant_value(a.shape[i]) != 1)
      return Error{ErrorKind::cannot_apply,
                   place_of(nodes_.program(), graph_, body.node) + ": %" + std::string(graph_.name(v)) +
                       " is needed whole, and shows one row again and again: chunks put together would not",
                   {},
                   "make it contiguous, or chunk other modules"};
  const std::string name = std::string(graph_.name(v)) + "_laid";
  SG_ASSIGN(const ValueId room,
            add("aten.new_empty_strided.default",
                {Arg::value(whole), nodes_.sizes_arg(a.shape), nodes_.sizes_arg(a.stride)}, name, body));
  return add("aten.copy_.default", {Arg::value(room), Arg::value(whole)}, name, body);
}

}  // namespace sg
