// Axis rules of elementwise ops: operands are aligned at their last axes; whole operands are sliced if they have the
// chunked axis.
#include <algorithm>

#include "libgraph/base/joined.h"
#include "libgraph/dtype.h"
#include "libpasses/axis/axis_rules.h"

namespace sg::axis {
namespace {

// The chunked axis of an operand, as an axis of the result.
std::optional<Along> in_result(const AxisCall& c, ValueId v, size_t result_rank) {
  const AxisState* s = c.along(v);
  if (s == nullptr || c.rank(v) > result_rank) return std::nullopt;
  Along out = s->along;
  out.axis += static_cast<uint32_t>(result_rank - c.rank(v));
  return out;
}

// Aligns a whole or constant operand with chunked ones: broadcast along the axis, or sliced.
Status align(AxisCall& c, ValueId v, const Along& a, size_t result_rank) {
  const size_t shift = result_rank - c.rank(v);
  if (a.axis < shift) return ok_status();
  Along own = a;
  own.axis -= static_cast<uint32_t>(shift);
  if (c.exprs.constant_value(c.type(v).shape[own.axis]) == 1) return ok_status();
  return c.want(v, own);
}

// floor_divide(position, k): positions in units that are k times coarser.
std::optional<AxisState> divided_position(const AxisCall& c) {
  if (c.op.name != "aten.floor_divide.default" && c.op.name != "aten.floor_divide.Scalar") return std::nullopt;
  const ValueId self = c.tensor("self");
  const AxisState* s = c.along(self);
  const auto k = c.integer("other");
  if (s == nullptr || !s->local || s->target == kNoDomain || !k || *k <= 0) return std::nullopt;
  const Expr divisor = c.exprs.constant(*k), unit = c.exprs.floordiv(s->target_unit, divisor);
  if (c.exprs.mul(unit, divisor) != s->target_unit) return std::nullopt;
  AxisState out = *s;
  out.target_unit = unit;
  return out;
}

// Whether the result holds the same integers.
bool only_shows(const Graph& graph, NodeId n) {
  const std::string_view op = graph.op_name(n);
  if (op == "aten.clone.default" || op == "aten.alias.default" || op == "aten.detach.default" ||
      op == "aten.contiguous.default")
    return true;
  return (op == "aten._to_copy.default" || op == "aten.to.dtype") && keeps_whole_numbers(graph, n);
}

// Results of local numbers are local. Copies preserve their meaning, and so do the additions that compute positions.
Status mark_local(AxisCall& c, AxisState* out) {
  bool any = false;
  for (ValueId v : c.tensors()) {
    const AxisState& s = c.state(v);
    if (only_shows(c.graph, c.id)) out->form = s.form;
    if (!s.local) continue;
    if (any && !(s.source == out->source)) return c.fail("positions of different origin are mixed");
    out->source = s.source;
    any = true;
    if (only_shows(c.graph, c.id)) out->target = s.target, out->target_unit = s.target_unit;
  }
  out->local = any;
  if (any) combine_forms(c, out);
  return ok_status();
}

// eq(keys, 0 .. n-1) marks each key's class: the keys.
ValueId marked_keys(const AxisCall& c) {
  const ValueId self = c.tensor("self"), other = c.tensor("other");
  if (c.op.name != "aten.eq.Tensor" || self.is_none() || other.is_none() || c.rank(self) != 2 || c.rank(other) != 1)
    return ValueId();
  const auto classes = c.exprs.constant_value(c.type(other).shape[0]), keys = keys_below(c, self);
  const bool fits = classes && keys && *keys <= *classes && c.exprs.constant_value(c.type(self).shape[1]) == 1;
  return fits && c.along(self) != nullptr && c.along(self)->along.axis == 0 && c.state(other).kind == AxisKind::iota
             ? base_of(c, self)
             : ValueId();
}

// buffer.add_(partial): the chunks add to it in turn.
Status accumulate(AxisCall& c) {
  const ValueId other = c.tensor("other");
  if (c.op.name != "aten.add_.Tensor" || other.is_none() || c.state(other).kind != AxisKind::partial)
    return c.fail("it writes chunked values to %" + std::string(c.graph.name(c.tensor("self"))) +
                  ", which is whole (sg-clean gives most such writes values of their own: run it first)");
  c.accumulates = true;
  return c.give_all(AxisState());
}

// The axis along which the operands are chunked, in the shape they broadcast to.
Result<Along> meet_at(AxisCall& c, size_t rank) {
  SG_ASSIGN(const ValueId first, c.first_along());
  const auto a = in_result(c, first, rank);
  if (!a) return c.fail(describe(c, first) + ", and the result has fewer axes");
  for (ValueId v : c.tensors()) {
    const AxisState& s = c.state(v);
    if (s.kind == AxisKind::along) {
      const auto other = in_result(c, v, rank);
      if (other == a) continue;
      if (other) c.want_to_meet(*a, *other);
      return c.fail(describe(c, first) + ", and " + describe(c, v) + ": they do not meet");
    } else if (s.kind == AxisKind::partial) {
      return c.fail(describe(c, v) + ", and meets single rows");
    } else {
      SG_TRY(align(c, v, *a, rank));
    }
  }
  return *a;
}

}  // namespace

Result<Along> meet(AxisCall& c) {
  size_t rank = 0;
  for (ValueId v : c.tensors()) {
    if (c.state(v).local) return c.fail("positions of each chunk's own");
    rank = std::max(rank, c.rank(v));
  }
  return meet_at(c, rank);
}

Status pointwise(AxisCall& c) {
  if (c.op.writes() && c.is_whole(c.tensor("self")) && c.state(c.tensor("self")).kind != AxisKind::constant)
    return accumulate(c);
  SG_ASSIGN(const Along a, meet_at(c, c.type(c.result(0)).shape.size()));
  if (auto position = divided_position(c)) return c.give_all(*position);
  AxisState out = along_state(a);
  SG_TRY(mark_local(c, &out));
  out.marks = marked_keys(c);
  return c.give_all(out);
}

bool keeps_whole_numbers(const Graph& graph, NodeId cast) {
  const DType from = graph.type(graph.node(cast).args[0].as_value()).dtype,
              to = graph.type(graph.node(cast).result(0)).dtype;
  const bool wide = to == DType::i64 || to == DType::i32 || to == DType::f64 || to == DType::f32;
  return from == to || (wide && from != DType::boolean && !is_complex(from) &&
                        !(is_floating(from) && to == DType::f32 && from == DType::f64));
}

Status same(AxisCall& c) { return c.give_all(c.state(c.tensors()[0])); }

Status like(AxisCall& c) {
  SG_ASSIGN(const ValueId self, c.first_along());
  return c.give_all(along_state(c.state(self).along));
}

// Elementwise, including what it saves for its gradient, which is empty on devices.
Status log_sigmoid(AxisCall& c) {
  if (c.type(c.result(1)).shape != c.type(c.result(0)).shape)
    return c.fail("what it keeps for its gradient is empty, as on a device");
  return like(c);
}

// Linear in exactly the operands that are partial: f(sum of x_c) is the sum of f(x_c).
Status partial(AxisCall& c) {
  std::vector<std::string_view> partial_params;
  for (size_t i = 0; i < c.op.params.size(); ++i) {
    const Arg* arg = c.find(c.op.params[i].name);
    if (arg == nullptr) continue;
    size_t some = 0, others = 0;
    arg->walk([&](const Arg& a) {
      if (a.is(ArgKind::value) && c.type(a.as_value()).kind == TypeKind::tensor)
        ++(c.state(a.as_value()).kind == AxisKind::partial ? some : others);
    });
    if (some > 0 && others > 0)
      return c.fail("only some of " + std::string(c.op.params[i].name) + " are sums over chunks");
    if (some > 0) partial_params.push_back(c.op.params[i].name);
  }
  const std::string list = joined(partial_params, "+");
  bool found = false;
  for (size_t at = 0; at < c.op.linear_in.size();) {
    const size_t end = std::min(c.op.linear_in.find(',', at), c.op.linear_in.size());
    found = found || c.op.linear_in.substr(at, end - at) == list;
    at = end + 1;
  }
  if (c.op.name.starts_with("aten.cumsum.") || c.op.name == "aten.alias.default") found = true;
  if (!found)
    return c.fail("%" + std::string(c.graph.name(c.tensors()[0])) +
                  " or another operand is a sum over chunks, and the op is not linear in it");
  std::vector<AxisState> out = counts_after(c);
  for (uint32_t i = 0; i < c.node.result_count; ++i) {
    const Type& t = c.type(c.result(i));
    if (t.kind != TypeKind::tensor) return c.fail("it makes a number of a sum over chunks");
    if (!is_floating(t.dtype) && !is_complex(t.dtype))
      for (ValueId v : c.tensors())
        if (t.dtype == DType::boolean || (is_floating(c.type(v).dtype) && out[i].source.is_none()))
          return c.fail("a sum over chunks is rounded to " + std::string(dtype_name(t.dtype)));
  }
  for (AxisState& state : out) SG_TRY(c.give(std::move(state)));
  return ok_status();
}

ValueId base_of(const AxisCall& c, ValueId v) {
  for (;;) {
    v = c.world.equal[v.index];
    // Sorted keys are the same keys in another order.
    const NodeId def = c.graph.value(v).def;
    if (!def || c.graph.op_info(def) == nullptr) return v;
    const OpInfo& op = *c.graph.op_info(def);
    if (c.graph.node(def).args.empty() || !c.graph.node(def).args[0].is(ArgKind::value)) return v;
    const bool rounds = op.has(kPointwise) && is_floating(c.graph.type(c.graph.node(def).args[0].as_value()).dtype) &&
                        !is_floating(c.graph.type(v).dtype);
    const bool shows = (only_shows(c.graph, def) && !rounds) || op.name == "aten.view.default" ||
                       op.name == "aten.reshape.default" || op.name == "aten._unsafe_view.default" ||
                       op.name == "aten.unsqueeze.default" || op.name == "aten.squeeze.dim" ||
                       (op.name.starts_with("aten.sort.") && c.graph.value(v).index == 0);
    if (!shows) return v;
    v = c.graph.node(def).args[0].as_value();
  }
}

}  // namespace sg::axis
