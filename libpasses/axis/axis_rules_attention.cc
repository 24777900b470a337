// Axis rules of attention: rows of a sequence attend to each other; batch entries are independent.
#include "libpasses/axis/axis_rules.h"

namespace sg::axis {
namespace {

constexpr std::string_view kBatched[] = {"query",          "key", "value",    "grad_out", "grad_out_",
                                         "grad_logsumexp", "out", "logsumexp"};

// The chunked batch axis; asks for every batched operand along it.
Result<Along> batch_axis(AxisCall& c) {
  SG_ASSIGN(const ValueId first, c.first_along());
  const Along a = c.state(first).along;
  const size_t rank = c.rank(c.tensor("query"));
  if (c.state(first).local || a.axis != 0 || rank < 3)
    return c.fail("attention couples the rows along axis " + std::to_string(a.axis) +
                  ": only the batch axis can be chunked");
  for (std::string_view name : kBatched)
    if (const ValueId v = c.tensor(name); !v.is_none()) SG_TRY(c.want(v, a));
  return a;
}

// Aligns a mask or bias: true if it has the batch axis, false if it is broadcast over the batch.
Result<bool> align_bias(AxisCall& c, ValueId v, const Along& a) {
  if (v.is_none() || c.rank(v) < c.rank(c.tensor("query")) || c.exprs.constant_value(c.type(v).shape[0]) == 1) {
    SG_TRY(c.want_whole(v, "the mask"));
    return false;
  }
  SG_TRY(c.want(v, a));
  return true;
}

// How many leading results are in rows; in a backward the gradient of the bias follows them.
size_t row_results(const AxisCall& c) {
  if (c.op.name == "aten.scaled_dot_product_attention.default") return 1;
  const bool backward = c.op.name.find("backward") != std::string_view::npos;
  return backward || c.op.name.starts_with("higher_order.") ? 3 : 2;
}

bool only_shapes_by(std::string_view op) { return op.starts_with("aten.new_") || op.ends_with("_like.default"); }

// A flex attention body may use the batch index, which differs within a chunk.
Status check_body(const AxisCall& c, NestedId id, size_t b_at) {
  const Graph& body = c.program.nested[id.index]->graph;
  if (body.inputs().size() <= b_at) return c.fail("a body of its own has too few inputs");
  const ValueId b = body.inputs()[b_at].value;
  for (NodeId user : body.users(b))
    if (!only_shapes_by(body.op_name(user)))
      return c.fail("its body computes with the number of the batch entry, which is another one in a chunk");
  for (const Output& output : body.outputs())
    if (output.value == b) return c.fail("its body gives the number of the batch entry");
  return ok_status();
}

std::vector<ValueId> values_of(const Arg* list) {
  std::vector<ValueId> out;
  if (list != nullptr)
    list->walk([&](const Arg& a) {
      if (a.is(ArgKind::value)) out.push_back(a.as_value());
    });
  return out;
}

}  // namespace

Status attention(AxisCall& c) {
  SG_ASSIGN(const Along a, batch_axis(c));
  const ValueId mask = c.op.param_index("attn_bias") >= 0 ? c.tensor("attn_bias") : c.tensor("attn_mask");
  SG_ASSIGN(const bool own_bias, align_bias(c, mask, a));
  for (std::string_view name : {"cum_seq_q", "cum_seq_k"})
    if (const ValueId v = c.tensor(name); !v.is_none() && c.type(v).kind == TypeKind::tensor)
      return c.fail("its sequences are packed, and where they begin is not cut");
  for (std::string_view name : {"philox_seed", "philox_offset"}) SG_TRY(c.want_whole(c.tensor(name), name));
  AxisState sum;
  sum.kind = AxisKind::partial;
  const size_t rows = row_results(c);
  const bool backward = c.op.name.find("backward") != std::string_view::npos;
  for (uint32_t i = 0; i < c.node.result_count; ++i) {
    const TypeKind kind = c.type(c.result(i)).kind;
    if (i < rows) SG_TRY(c.give_along(a));
    else if (backward)
      SG_TRY(kind != TypeKind::tensor ? c.give(AxisState()) : own_bias ? c.give_along(a) : c.give(sum));
    else SG_TRY(c.give_settled(Settle::first));
  }
  return ok_status();
}

Status flex_attention(AxisCall& c) {
  SG_ASSIGN(const Along a, batch_axis(c));
  const Arg* mask = c.find("block_mask");
  if (mask == nullptr || !mask->is(ArgKind::list) || mask->items().empty() || !mask->items().back().is(ArgKind::graph))
    return c.fail("its block mask is not known");
  for (ValueId v : values_of(mask)) {
    if (c.type(v).kind != TypeKind::tensor || c.rank(v) == 0) continue;
    const bool shared = c.exprs.constant_value(c.type(v).shape[0]) == 1;
    SG_TRY(shared ? c.want_whole(v, "the block mask") : c.want(v, a));
  }
  for (std::string_view name : {"score_mod", "fw_graph", "joint_graph"})
    if (const Arg* body = c.find(name); body != nullptr && body->is(ArgKind::graph))
      SG_TRY(check_body(c, body->as_graph(), 1));
  SG_TRY(check_body(c, mask->items().back().as_graph(), 0));
  for (std::string_view name : {"score_mod_other_buffers", "mask_mod_other_buffers"})
    for (ValueId v : values_of(c.find(name))) SG_TRY(c.want_whole(v, "what its bodies look up"));
  for (uint32_t i = 0; i < c.node.result_count; ++i) {
    const Type& t = c.type(c.result(i));
    if (t.kind == TypeKind::list && !t.elements.empty())
      return c.fail("gradients of what its bodies use are not followed");
    SG_TRY(t.kind == TypeKind::tensor ? c.give_along(a) : c.give(AxisState()));
  }
  return ok_status();
}

}  // namespace sg::axis
