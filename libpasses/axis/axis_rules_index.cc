// Axis rules of indexed reads and writes. A chunk may look up what every chunk has, axes other than its own, and - by
// positions of its own - its own rows and items.
#include "libpasses/axis/axis_rules.h"

namespace sg::axis {
namespace {

// Whether the positions point into the chunk's own entries of `into`.
bool leads_into(const AxisState& positions, const Along& into) {
  return positions.local && positions.target != kNoDomain && positions.target == into.domain &&
         positions.target_unit == into.unit;
}

// The only index of an indices list, and the axis it applies to.
struct OneIndex {
  ValueId value;
  size_t axis = 0;
};
Result<OneIndex> one_index(const AxisCall& c) {
  const Arg* list = c.find("indices");
  OneIndex out;
  if (list == nullptr || !list->is(ArgKind::list)) return c.fail("its indices are not known");
  for (size_t i = 0; i < list->items().size(); ++i) {
    const Arg& item = list->items()[i];
    if (!item.is(ArgKind::value)) continue;
    if (!out.value.is_none()) return c.fail("several indices at once are not followed");
    out = {item.as_value(), i};
  }
  if (out.value.is_none()) return c.fail("its indices are not known");
  if (c.type(out.value).dtype == DType::boolean)
    return c.fail("how many entries a mask picks differs from chunk to chunk");
  return out;
}

// Looks up counts by the part that contains each item.
Status look_up_counts(AxisCall& c, ValueId self, const AxisState& index, AxisState* out) {
  const CountTable* table = table_of(c, c.state(self));
  const auto layout = table != nullptr ? layout_of(c, index.along.domain, *table) : std::nullopt;
  if (!index.form.part || c.rank(self) != 1 || !layout || !same_parts(*table, *layout))
    return c.fail(describe(c, self) +
                  ", and single entries of it are looked up by what is not known to be the parts that it counts");
  out->local = true, out->source = c.state(self).source;
  out->form.plus = c.state(self).table;
  return c.give(*out);
}

// self[..., index, ...] with the index at `axis`.
Status look_up(AxisCall& c, ValueId self, ValueId index, size_t axis) {
  const size_t index_rank = c.rank(index);
  const AxisState i = c.state(index), x = c.state(self);
  if (i.kind == AxisKind::partial) return c.fail("its index is a sum over chunks");
  auto moved = [&](uint32_t own) { return static_cast<uint32_t>(own < axis ? own : own + index_rank - 1); };
  if (i.kind != AxisKind::along) {
    if (x.kind != AxisKind::along || x.along.axis == axis)
      return c.fail("every chunk would look up the same entries of a chunked axis");
    AxisState out = x;
    out.along.axis = moved(x.along.axis);
    out.marks = ValueId();
    return c.give(out);
  }
  Along out = i.along;
  out.axis += static_cast<uint32_t>(axis);
  if (x.kind == AxisKind::along) {
    if (x.along.axis != axis || !leads_into(i, x.along))
      return c.fail("its positions do not lead into the chunk's own entries of %" + std::string(c.graph.name(self)));
    if (x.local) return c.fail("positions of positions are not followed");
    return c.give_along(out);
  }
  if (i.local) return c.fail("positions of each chunk's own look up a whole value");
  AxisState s = along_state(out);
  if (x.kind == AxisKind::partial) return look_up_counts(c, self, i, &s);
  if (x.kind == AxisKind::iota && index_rank == 1) s.form = i.form;
  return c.give(s);
}

// Whether nothing before this node wrote to `v` or viewed it: earlier users only read it.
bool is_fresh(const AxisCall& c, ValueId v) {
  for (NodeId user : c.graph.users(v)) {
    if (user == c.id || c.graph.before(c.id, user)) continue;
    const OpInfo* op = c.graph.op_info(user);
    if (op == nullptr || !op->has(kPure) || op->has(kView)) return false;
  }
  return true;
}

bool begins_as_zeros(const AxisCall& c, ValueId v) {
  const NodeId def = c.graph.value(v).def;
  return def && c.graph.op_name(def).find("zeros") != std::string_view::npos && is_fresh(c, v);
}

// Whether `v` is a fill that holds nothing yet; such a tensor counts as long as what was sorted if it is as long as the
// sorted items.
bool is_fill(const AxisCall& c, ValueId v) {
  const NodeId def = c.graph.value(v).def;
  const std::string_view op = def ? c.graph.op_name(def) : std::string_view();
  const bool fills =
      op == "aten.empty_like.default" || op == "aten.zeros_like.default" || c.state(v).kind == AxisKind::constant;
  return fills && is_fresh(c, v);
}

// Whether the index is the positions of a sort within the sorted axis: a permutation.
bool puts_back(const AxisCall& c, const AxisState& index) {
  if (index.target == kNoDomain || c.exprs.constant_value(index.along.unit) != 1) return false;
  const AxisDomain& d = c.domain(index.along);
  return d.sorted.domain == index.target && d.sorted.unit == index.target_unit;
}

// Whether this is inverse[positions] = 0, 1, 2, ... for the positions of a sort, which gives each entry's new place.
bool inverts(const AxisCall& c, const AxisState& index, ValueId values) {
  if (values.is_none() || c.state(values).kind != AxisKind::iota || !puts_back(c, index)) return false;
  return c.rank(values) == 1 && c.type(values).shape[0] == c.domain(index.along).size;
}

Status invert(AxisCall& c, ValueId self, const AxisState& index, ValueId values) {
  if (!is_fill(c, self) || c.rank(self) != 1) return c.fail("positions are inverted into a tensor that is not fresh");
  const Along into{index.target, 0, index.target_unit};
  if (const AxisState* s = c.along(self); s == nullptr || !(s->along == index.along)) SG_TRY(c.want(self, into));
  AxisState counted = along_state(index.along);
  counted.local = true, counted.target = index.along.domain, counted.target_unit = index.along.unit,
  counted.source = index.source;
  c.constants.emplace_back(values, counted);
  AxisState out = counted;
  out.along = into;
  return c.give(out);
}

bool are_ones(const AxisCall& c, ValueId v) {
  const NodeId def = c.graph.value(v).def;
  const std::string_view op = def ? c.graph.op_name(def) : std::string_view();
  return (op == "aten.ones_like.default" || op == "aten.ones.default" || op == "aten.new_ones.default") &&
         is_integral(c.type(v).dtype) && is_fresh(c, v);
}

// Each chunk adds the contributions of its own entries into zeros, at any index; the chunks add up. Adding ones counts
// keys.
Status add_up(AxisCall& c, ValueId self, ValueId index, ValueId values, const Along& values_along) {
  SG_TRY(c.want_whole(self, "what it adds to"));
  SG_TRY(c.want(values, values_along));
  AxisState sum;
  sum.kind = AxisKind::partial;
  const auto classes = c.rank(self) == 1 ? c.exprs.constant_value(c.type(self).shape[0]) : std::nullopt;
  if (!classes || !are_ones(c, values) || c.find("alpha") != nullptr) return c.give(sum);
  return c.give(counts_state(c, root_table({base_of(c, index)}, *classes)));
}

bool adds_to_zeros(const AxisCall& c, ValueId self) {
  return (c.op.name == "aten.index_add.default" || c.op.name == "aten.scatter_add.default") && begins_as_zeros(c, self);
}

// A write at the chunk's own positions; `self` is then along its rows.
Status write_by(AxisCall& c, ValueId self, const AxisState& index, ValueId values, const Along& values_along,
                size_t axis) {
  if (!index.local) return c.fail("chunks would write to one another's entries");
  if (axis == 0 && inverts(c, index, values)) return invert(c, self, index, values);
  Along into;
  const AxisState* s = c.along(self);
  const bool turns_back = s != nullptr && s->along.axis == axis && s->along.domain == index.along.domain &&
                          s->along.unit == index.along.unit && puts_back(c, index) && is_fill(c, self);
  if (turns_back) {
    into = {index.target, static_cast<uint32_t>(axis), index.target_unit};
  } else if (s != nullptr) {
    into = s->along;
  } else if (index.target != kNoDomain) {
    into = {index.target, static_cast<uint32_t>(axis), index.target_unit};
  } else {
    return c.fail("where its positions lead is not known");
  }
  if (into.axis != axis || !leads_into(index, into))
    return c.fail("its positions do not lead into the chunk's own entries of %" + std::string(c.graph.name(self)));
  if (!values.is_none() && (c.rank(values) > 0 || !c.is_whole(values))) SG_TRY(c.want(values, values_along));
  if (!values.is_none() && c.state(values).local) return c.fail("positions of each chunk's own are written");
  if (!turns_back) SG_TRY(c.want(self, into));
  return c.give_along(into);
}

}  // namespace

Status index(AxisCall& c) {
  SG_ASSIGN(const OneIndex i, one_index(c));
  return look_up(c, c.tensor("self"), i.value, i.axis);
}

Status index_select(AxisCall& c) {
  const ValueId self = c.tensor("self"), index = c.tensor("index");
  const auto dim = c.dim("dim", c.rank(self), 0);
  if (!dim || index.is_none()) return c.fail("its axis is not known");
  return look_up(c, self, index, *dim);
}

Status index_put(AxisCall& c) {
  SG_ASSIGN(const OneIndex i, one_index(c));
  const ValueId self = c.tensor("self"), values = c.tensor("values");
  const AxisState s = c.state(i.value);
  if (s.kind != AxisKind::along) return c.fail("every chunk would write to the same entries");
  Along at = s.along;
  const size_t values_rank = c.rank(self) - 1 + c.rank(i.value);
  if (values.is_none() || c.rank(values) > values_rank) return c.fail("its values are not known");
  const size_t missing = values_rank - c.rank(values);
  at.axis += static_cast<uint32_t>(i.axis);
  if (at.axis < missing) return c.fail("its values are broadcast along the chunked axis");
  at.axis -= static_cast<uint32_t>(missing);
  if (!s.local && c.boolean("accumulate", false) && !c.op.writes() && begins_as_zeros(c, self))
    return add_up(c, self, i.value, values, at);
  return write_by(c, self, s, values, at, i.axis);
}

Status index_copy(AxisCall& c) {
  const ValueId self = c.tensor("self"), index = c.tensor("index"), source = c.tensor("source");
  const auto dim = c.dim("dim", c.rank(self), 0);
  if (!dim || index.is_none() || source.is_none() || c.rank(index) != 1) return c.fail("its axis is not known");
  const AxisState i = c.state(index);
  if (i.kind == AxisKind::along) {
    const Along rows{i.along.domain, static_cast<uint32_t>(*dim), i.along.unit};
    return !i.local && adds_to_zeros(c, self) ? add_up(c, self, index, source, rows)
                                              : write_by(c, self, i, source, rows, *dim);
  }
  SG_ASSIGN(const ValueId first, c.first_along());
  const AxisState s = c.state(first);
  if (s.along.axis == *dim && first == source && !s.local && adds_to_zeros(c, self)) {
    SG_TRY(c.want(index, {s.along.domain, 0, s.along.unit}));
    return add_up(c, self, index, source, s.along);
  }
  SG_TRY(c.want_whole(index, "its index"));
  if (s.along.axis == *dim) return c.fail("chunks would write to one another's entries");
  if (s.local) return c.fail("positions of each chunk's own are written");
  SG_TRY(c.want(self, s.along));
  SG_TRY(c.want(source, s.along));
  return c.give_along(s.along);
}

Status gather(AxisCall& c) {
  const ValueId self = c.tensor("self"), index = c.tensor("index");
  const auto dim = c.dim("dim", c.rank(self), 0);
  if (!dim || c.rank(index) != c.rank(self)) return c.fail("its axis is not known");
  const AxisState i = c.state(index), x = c.state(self);
  if (i.kind == AxisKind::along && i.along.axis == *dim) {
    if (i.along.runs) return c.fail("its positions are chunked in runs");
    if (x.kind == AxisKind::along && x.along.axis == *dim && !x.local && leads_into(i, x.along))
      return c.give_along(i.along);
    if (c.is_whole(self) && !i.local) return c.give_along(i.along);
    return c.fail("its positions do not lead into the chunk's own entries of %" + std::string(c.graph.name(self)));
  }
  SG_ASSIGN(const ValueId first, c.first_along());
  const Along a = c.state(first).along;
  if (a.axis == *dim) return c.fail("every chunk would look up the same entries of a chunked axis");
  if (i.local || x.local) return c.fail("positions of each chunk's own");
  SG_TRY(c.want(self, a));
  SG_TRY(c.want(index, a));
  return c.give_along(a);
}

Status scatter(AxisCall& c) {
  const ValueId self = c.tensor("self"), index = c.tensor("index"), src = c.tensor("src");
  const auto dim = c.op.param_index("dim") < 0 ? std::optional<size_t>(0) : c.dim("dim", c.rank(self), 0);
  if (!dim || c.rank(index) != c.rank(self) || (!src.is_none() && c.rank(src) != c.rank(self)))
    return c.fail("its axis is not known");
  const AxisState i = c.state(index);
  if (i.kind == AxisKind::along && i.along.axis == *dim && i.along.runs)
    return c.fail("its positions are chunked in runs");
  if (i.kind == AxisKind::along && i.along.axis == *dim)
    return !i.local && adds_to_zeros(c, self) ? add_up(c, self, index, src, i.along)
                                              : write_by(c, self, i, src, i.along, *dim);
  SG_ASSIGN(const ValueId first, c.first_along());
  const Along a = c.state(first).along;
  if (a.axis == *dim && first == src && !a.runs && !c.state(src).local && adds_to_zeros(c, self)) {
    SG_TRY(c.want(index, a));
    return add_up(c, self, index, src, a);
  }
  if (a.axis == *dim) return c.fail("chunks would write to one another's entries");
  for (ValueId v : {self, index, src})
    if (!v.is_none()) {
      if (c.state(v).local) return c.fail("positions of each chunk's own");
      SG_TRY(c.want(v, a));
    }
  AxisState out = along_state(a);
  const Arg* value = c.find("value");
  const bool one = value != nullptr && ((value->is(ArgKind::boolean) && value->as_bool()) ||
                                        (value->is(ArgKind::integer) && value->as_int() == 1));
  if (one && *dim == 1 && !a.runs && begins_as_zeros(c, self) && keys_differ_in_row(c, index))
    out.marks = base_of(c, index);
  return c.give(out);
}

// What belongs to other rows is left alone.
Status scatter_reduce(AxisCall& c) {
  const ValueId self = c.tensor("self"), index = c.tensor("index"), src = c.tensor("src");
  const auto dim = c.dim("dim", c.rank(self), 0);
  SG_ASSIGN(const ValueId first, c.first_along());
  const Along a = c.state(first).along;
  for (ValueId v : {self, index, src}) {
    if (v.is_none()) continue;
    if (!dim || c.rank(v) != c.rank(self)) return c.fail("its axis is not known");
    if (c.state(v).local) return c.fail("positions of each chunk's own");
    if (a.axis == *dim) return c.fail("chunks would write to one another's entries");
    SG_TRY(c.want(v, a));
  }
  return c.give_along(a);
}

}  // namespace sg::axis
