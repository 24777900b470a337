// Axis rules of views, and of ops that cut and join along axes other than the chunked one.
#include <numeric>

#include "libpasses/axis/axis_rules.h"

namespace sg::axis {
namespace {

using Exprs = std::vector<Expr>;

// The state of the view's one tensor operand, which must be along an axis.
Result<AxisState> self_state(const AxisCall& c, std::string_view name = "self") {
  const AxisState* s = c.along(c.tensor(name));
  if (s == nullptr) return c.fail("argument " + std::string(name) + " is not chunked along an axis");
  return *s;
}

Status give_moved(AxisCall& c, AxisState s, size_t axis) {
  s.along.axis = static_cast<uint32_t>(axis);
  return c.give_all(s);
}

bool is_one(const AxisCall& c, Expr e) { return c.exprs.constant_value(e) == 1; }

// The axes [old_begin, old_end) become [new_begin, new_end): the smallest groups of equal product.
struct Group {
  size_t old_begin = 0, old_end = 0, new_begin = 0, new_end = 0;
};

// The group of axis `axis` of the old shape; none if products cannot be proven equal.
std::optional<Group> group_of(const AxisCall& c, const Exprs& before, const Exprs& after, size_t axis) {
  Group g;
  while (g.old_begin < before.size()) {
    g.old_end = g.old_begin + 1, g.new_end = g.new_begin;
    Expr left = before[g.old_begin], right = c.exprs.constant(1);
    while (left != right) {
      const auto l = c.exprs.constant_value(left), r = c.exprs.constant_value(right);
      const bool grow_new =
          l && r ? *r < *l : g.new_end - g.new_begin <= g.old_end - g.old_begin && g.new_end < after.size();
      if (grow_new && g.new_end < after.size()) right = c.exprs.mul(right, after[g.new_end++]);
      else if (g.old_end < before.size()) left = c.exprs.mul(left, before[g.old_end++]);
      else if (g.new_end < after.size()) right = c.exprs.mul(right, after[g.new_end++]);
      else return std::nullopt;
    }
    if (axis < g.old_end) return g;
    g.old_begin = g.old_end, g.new_begin = g.new_end;
  }
  return std::nullopt;
}

// a / b, if it is exact.
std::optional<Expr> quotient(const AxisCall& c, Expr a, Expr b) {
  if (c.exprs.constant_value(b) == 0) return std::nullopt;
  const Expr out = c.exprs.floordiv(a, b);
  return c.exprs.mul(out, b) == a ? std::optional(out) : std::nullopt;
}

// The axis of the new shape that the chunked axis becomes: the first of its group that the preceding runs do not fill.
struct Place {
  Group group;
  size_t axis = 0;
  Expr runs;
};

Result<Place> place_in_shape(const AxisCall& c, const Along& a, const Exprs& before, const Exprs& after) {
  const auto g = group_of(c, before, after, a.axis);
  if (!g) return c.fail("the new shape cannot be told to keep the chunked axis apart");
  Expr runs = a.runs ? a.runs : c.exprs.constant(1);
  for (size_t i = g->old_begin; i < a.axis; ++i) runs = c.exprs.mul(runs, before[i]);
  for (size_t i = g->new_begin; i < g->new_end; ++i) {
    const auto left = quotient(c, runs, after[i]);
    if (!left) return Place{*g, i, runs};
    runs = *left;
  }
  return c.fail("the chunked axis disappears");
}

// Where the chunked axis lies in the new shape, if its axis there holds whole entries of the domain.
Result<Along> regroup(const AxisCall& c, const Along& a, const Exprs& before, const Exprs& after) {
  SG_ASSIGN(const Place p, place_in_shape(c, a, before, after));
  const auto unit = quotient(c, after[p.axis], c.exprs.mul(p.runs, c.domain(a).size));
  if (!unit) return c.fail("axis " + std::to_string(p.axis) + " of the result is not a multiple of the chunked rows");
  return Along{a.domain, static_cast<uint32_t>(p.axis), *unit, is_one(c, p.runs) ? Expr() : p.runs};
}

// The least multiple of `step` that `part` divides, in steps; with symbols one that may be larger.
Expr steps_to_fill(const AxisCall& c, Expr part, Expr step) {
  const auto p = c.exprs.constant_value(part), s = c.exprs.constant_value(step);
  if (p && s && *p != 0) return c.exprs.constant(*p / std::gcd(*p, *s));
  return quotient(c, part, step).value_or(part);
}

// How many rows make an entry of the new axis, where the view takes several: 8 of the 32 of [32, w] as [4, 8, w].
std::optional<RowsTogether> rows_together(const AxisCall& c, const Along& a, const Exprs& before, const Exprs& after) {
  const Result<Place> p = place_in_shape(c, a, before, after);
  if (!p.ok() || !c.domain(a).is_rows) return std::nullopt;
  Expr row = a.unit, entry = c.exprs.constant(1);  // elements of the group
  for (size_t i = a.axis + 1; i < p->group.old_end; ++i) row = c.exprs.mul(row, before[i]);
  for (size_t i = p->axis + 1; i < p->group.new_end; ++i) entry = c.exprs.mul(entry, after[i]);
  const Expr rows = c.domain(a).size, together = steps_to_fill(c, entry, row);
  if (is_one(c, together) || !quotient(c, rows, together)) return std::nullopt;
  return RowsTogether{rows, together};
}

// The new index of an axis after axis `gone` is removed; none if it is the removed one.
std::optional<size_t> without(size_t axis, size_t gone) {
  if (axis == gone) return std::nullopt;
  return axis < gone ? axis : axis - 1;
}

std::string other_axis(std::string_view what) {
  return std::string(what) + " the chunked axis: it must work along another";
}

}  // namespace

namespace {

// Where a size that differs per chunk stands in the new shape.
std::optional<size_t> own_size_in_shape(const AxisCall& c) {
  for (std::string_view list : {"size", "shape"})
    if (const Arg* sizes = c.find(list); sizes != nullptr && sizes->is(ArgKind::list))
      for (size_t i = 0; i < sizes->items().size(); ++i)
        if (const Arg& size = sizes->items()[i]; size.is(ArgKind::value) && c.state(size.as_value()).is_own_size())
          return i;
  return std::nullopt;
}

// A whole tensor viewed in a shape that differs per chunk is cut along the axis that becomes the axis of that size.
Result<AxisState> cut_for_shape(AxisCall& c) {
  const ValueId self = c.tensor("self");
  const auto at = own_size_in_shape(c);
  if (!at || !c.is_whole(self)) return self_state(c);
  const Exprs &before = c.type(self).shape, &after = c.type(c.result(0)).shape;
  for (uint32_t d = 0; d < c.world.domains.size(); ++d)
    for (size_t axis = 0; c.world.domains[d].is_rows && axis < before.size(); ++axis) {
      const auto unit = quotient(c, before[axis], c.world.domains[d].size);
      if (!unit) continue;
      const Along cut{d, static_cast<uint32_t>(axis), *unit, Expr()};
      const auto moved = regroup(c, cut, before, after);
      if (!moved.ok() || moved->axis != *at) continue;
      SG_TRY(c.want(self, cut));
      return along_state(cut);
    }
  return c.fail("its new shape has a size of each chunk's own, and no axis of %" + std::string(c.graph.name(self)) +
                " becomes the axis of that size");
}

}  // namespace

Status view(AxisCall& c) {
  SG_ASSIGN(AxisState s, cut_for_shape(c));
  const Exprs& after = c.type(c.result(0)).shape;
  const Exprs& before = c.type(c.tensor("self")).shape;
  const Result<Along> moved = regroup(c, s.along, before, after);
  if (!moved.ok()) {
    c.wanted_together = rows_together(c, s.along, before, after);
    return moved.error();
  }
  const Along a = *moved;
  if (a.runs && (!c.domain(a).is_rows || s.local))
    return c.fail("it merges the chunked axis " + std::to_string(s.along.axis) +
                  " behind another, and the data decides which entries a chunk has");
  for (std::string_view list : {"size", "shape"})
    if (c.find(list) != nullptr) SG_TRY(c.edit_size(list, a.axis, a));
  s.along = a;
  s.marks = ValueId();
  return c.give_all(s);
}

Status expand(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c));
  const size_t shift = c.rank(c.result(0)) - c.rank(c.tensor("self"));
  s.along.axis += static_cast<uint32_t>(shift);
  if (!c.is_as_long(c.result(0), s.along)) return c.fail("it widens the chunked axis");
  SG_TRY(c.edit_size("size", s.along.axis, s.along));
  return c.give_all(s);
}

Status transpose(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c));
  const size_t rank = c.rank(c.tensor("self"));
  if (rank < 2) return c.give_all(s);
  const auto x = c.dim("dim0", rank, 0), y = c.dim("dim1", rank, 1);
  if (!x || !y) return c.fail("its axes are not known");
  const size_t axis = s.along.axis;
  return give_moved(c, s, axis == *x ? *y : axis == *y ? *x : axis);
}

Status permute(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c));
  const size_t rank = c.rank(c.tensor("self"));
  const auto dims = c.integers("dims");
  if (!dims || dims->size() != rank) return c.fail("its axes are not known");
  for (size_t i = 0; i < rank; ++i)
    if (c.wrap((*dims)[i], rank) == s.along.axis) return give_moved(c, s, i);
  return c.fail("its axes are not known");
}

// An axis of a chunk may have length 1 where the whole has more: which axes are removed must not depend on it.
Status squeeze(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c));
  const ValueId self = c.tensor("self");
  const size_t rank = c.rank(self);
  const auto dims = c.integers("dim");
  if (!dims) return c.fail("it removes every axis that is 1, and a chunk may have one row: name the axes");
  size_t axis = s.along.axis, gone = 0;
  for (int64_t d : *dims) {
    const auto dim = c.wrap(d, rank);
    if (!dim) return c.fail("its axes are not known");
    if (*dim == s.along.axis) return c.fail("it would remove the chunked axis of a chunk of one row");
    gone += *dim < axis && is_one(c, c.type(self).shape[*dim]);
  }
  return give_moved(c, s, axis - gone);
}

Status unsqueeze(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c));
  const auto dim = c.dim("dim", c.rank(c.tensor("self")) + 1, 0);
  if (!dim) return c.fail("its axis is not known");
  return give_moved(c, s, s.along.axis + (s.along.axis >= *dim));
}

Status keep_inner(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c));
  const bool regroups = c.op.name == "aten.view.dtype" || c.op.name == "aten.view_as_complex.default";
  if (regroups && s.along.axis + 1 >= c.rank(c.tensor("self")))
    return c.fail("it regroups the elements of the chunked axis");
  return c.give_all(s);
}

Status slice(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c));
  const ValueId self = c.tensor("self");
  const auto dim = c.dim("dim", c.rank(self), 0);
  if (!dim) return c.fail("its axis is not known");
  if (*dim != s.along.axis) return c.give_all(s);
  const auto size = c.exprs.constant_value(c.type(self).shape[*dim]);
  const auto end = c.find("end") == nullptr ? std::optional(INT64_MAX) : c.integer("end");
  const bool all = (c.find("start") == nullptr || c.integer("start") == 0) && c.integer("step", 1) == 1 && end &&
                   (*end == INT64_MAX || (size && *end >= *size));
  return all ? c.give_all(s) : c.fail(other_axis("it cuts"));
}

Status unfold(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c));
  const auto dim = c.dim("dimension", c.rank(c.tensor("self")), 0);
  if (!dim || *dim == s.along.axis) return c.fail(other_axis("it makes windows of"));
  return c.give_all(s);
}

// The last axis of the gradient lies within the windows.
Status unfold_backward(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c, "grad_in"));
  const size_t rank = c.rank(c.result(0)), axis = s.along.axis;
  const auto dim = c.dim("dim", rank, 0);
  if (!dim || *dim == axis || axis >= rank) return c.fail(other_axis("it adds up windows of"));
  SG_TRY(c.edit_size("input_sizes", axis, s.along));
  return c.give_all(s);
}

Status slice_backward(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c, "grad_output"));
  const size_t rank = c.rank(c.result(0));
  const bool selects = c.op.name == "aten.select_backward.default";
  const auto dim = c.dim("dim", rank, 0);
  if (!dim) return c.fail("its axis is not known");
  size_t axis = s.along.axis;
  if (selects) axis += axis >= *dim;
  if (!selects && *dim == axis) {
    const auto size = c.exprs.constant_value(c.type(c.result(0)).shape[axis]);
    const bool all = c.integer("start") == 0 && c.integer("step") == 1 && c.integer("end") &&
                     (c.integer("end") == INT64_MAX || (size && *c.integer("end") >= *size));
    if (!all) return c.fail(other_axis("it pads"));
  }
  s.along.axis = static_cast<uint32_t>(axis);
  SG_TRY(c.edit_size("input_sizes", axis, s.along));
  return c.give_all(s);
}

Status select(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c));
  const auto dim = c.dim("dim", c.rank(c.tensor("self")), 0);
  const auto axis = dim ? without(s.along.axis, *dim) : std::nullopt;
  return axis ? give_moved(c, s, *axis) : c.fail(other_axis("it selects along"));
}

namespace {

// Each part is one run: the same rows again.
Status split_runs(AxisCall& c, AxisState s) {
  const Expr length = c.extent(s.along.one_run());
  bool fits = s.along.runs && c.exprs.constant_value(s.along.runs) == c.node.result_count;
  for (uint32_t i = 0; i < c.node.result_count; ++i)
    fits = fits && c.is_as_long(c.type(c.result(i)).shape[s.along.axis], length);
  if (!fits) return c.fail(other_axis("it splits"));
  s.along = s.along.one_run();
  if (c.find("split_size") != nullptr) SG_TRY(c.edit_size("split_size", 0, s.along));
  if (const Arg* sizes = c.find("split_sizes"))
    for (size_t i = 0; i < sizes->items().size(); ++i) SG_TRY(c.edit_size("split_sizes", i, s.along));
  return c.give_all(s);
}

// The same rows several times in sequence: runs.
Status join_runs(AxisCall& c, const AxisState& s) {
  const auto runs = s.along.runs ? c.exprs.constant_value(s.along.runs) : std::optional<int64_t>(1);
  if (!runs || s.local || !c.domain(s.along).is_rows) return c.fail(other_axis("it joins along"));
  const std::vector<ValueId> parts = c.tensors();
  for (ValueId v : parts) SG_TRY(c.want(v, s.along));
  const int64_t all = *runs * static_cast<int64_t>(parts.size());
  return c.give_along({s.along.domain, s.along.axis, s.along.unit, all == 1 ? Expr() : c.exprs.constant(all)});
}

}  // namespace

Status split(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c));
  const auto dim = c.dim("dim", c.rank(c.tensor("self")), 0);
  if (!dim) return c.fail("its axis is not known");
  return *dim == s.along.axis ? split_runs(c, s) : c.give_all(s);
}

Status unbind(AxisCall& c) { return select(c); }

Status flip(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c));
  const auto dims = c.integers("dims");
  if (!dims) return c.fail("its axes are not known");
  for (int64_t d : *dims)
    if (c.wrap(d, c.rank(c.tensor("self"))) == s.along.axis) return c.fail(other_axis("it turns"));
  return c.give_all(s);
}

// Repetition along other axes; added axes come first.
Status repeat(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c));
  s.along.axis += static_cast<uint32_t>(c.rank(c.result(0)) - c.rank(c.tensor("self")));
  const Arg* repeats = c.find("repeats");
  if (!repeats || !repeats->is(ArgKind::list) || s.along.axis >= repeats->items().size())
    return c.fail("how often it repeats each axis is not known");
  const Arg& own = repeats->items()[s.along.axis];
  if (!own.is(ArgKind::integer) || own.as_int() != 1) return c.fail("it repeats the chunked axis");
  s.marks = ValueId();
  return c.give_all(s);
}

// Triangles of the matrices in the last two axes.
Status repeat_each(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c));
  const auto dim = c.find("dim") == nullptr ? std::nullopt : c.dim("dim", c.rank(c.tensor("self")), 0);
  if (!dim || *dim == s.along.axis) return c.fail(other_axis("it repeats along"));
  s.marks = ValueId();
  return c.give_all(s);
}

Status slice_scatter(AxisCall& c) {
  const ValueId self = c.tensor("self"), src = c.tensor("src");
  const auto dim = c.dim("dim", c.rank(self), 0);
  SG_ASSIGN(const ValueId first, c.first_along());
  if (!dim || c.state(first).local) return c.fail("its axis is not known");
  const bool selects = c.op.name == "aten.select_scatter.default";
  Along a = c.state(first).along;
  if (selects && first != self) a.axis += a.axis >= *dim;
  if (a.axis == *dim) return c.fail(other_axis("it writes along"));
  Along of_src = a;
  if (selects) of_src.axis -= a.axis > *dim;
  SG_TRY(c.want(self, a));
  SG_TRY(c.want(src, of_src));
  return c.give_along(a);
}

// Pixels trade their last two axes for channels before them; channels alone keep all the others.
Status shuffle_channels(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c));
  const bool alone = c.op.name == "aten.channel_shuffle.default";
  if (alone ? s.along.axis == 1 : s.along.axis + 3 >= c.rank(c.tensor("self")))
    return c.fail("it moves entries of the chunked axis");
  return c.give_all(s);
}

Status one_hot(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c));
  if (c.integer("num_classes", -1) < 0) return c.fail("how many classes there are depends on all the data");
  if (s.local) return c.fail("positions of each chunk's own");
  return c.give_along(s.along);
}

Status triangle(AxisCall& c) {
  SG_ASSIGN(AxisState s, self_state(c));
  if (s.along.axis + 2 >= c.rank(c.tensor("self")))
    return c.fail("which elements it keeps goes by their place along the chunked axis");
  return c.give_all(s);
}

Status cat(AxisCall& c) {
  SG_ASSIGN(const ValueId first, c.first_along());
  const AxisState s = c.state(first);
  const auto dim = c.dim("dim", c.rank(first), 0);
  if (!dim) return c.fail("its axis is not known");
  if (*dim == s.along.axis) return join_runs(c, s);
  for (ValueId v : c.tensors()) {
    if (c.rank(v) == 1 && c.rank(first) != 1) continue;  // PyTorch's legacy empty vector
    if (c.state(v).local) return c.fail("positions of each chunk's own are joined");
    SG_TRY(c.want(v, s.along));
  }
  return c.give_along(s.along);
}

Status stack(AxisCall& c) {
  SG_ASSIGN(const ValueId first, c.first_along());
  Along a = c.state(first).along;
  const auto dim = c.dim("dim", c.rank(first) + 1, 0);
  if (!dim) return c.fail("its axis is not known");
  for (ValueId v : c.tensors()) {
    if (c.rank(v) == 1 && c.rank(first) != 1) continue;  // PyTorch's legacy empty vector
    if (c.state(v).local) return c.fail("positions of each chunk's own are joined");
    SG_TRY(c.want(v, a));
  }
  a.axis += a.axis >= *dim;
  return c.give_along(a);
}

}  // namespace sg::axis
