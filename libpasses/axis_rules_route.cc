// Axis rules of what the data decides: sorts, counts, exchanges with counted splits, grouped products.
//
// The idea of a dispatch: rows are sorted by keys (which expert), the keys are counted, and the counts say how long each rank's and
// each expert's part is. A chunk that sorts and counts its own rows routes each row where the whole would. What ties sort, counts,
// positions and offsets together is their KeySource: rules refuse to mix sources. That positions computed from counts are those of
// the items they are used on is taken from the dispatch, and not proven: docs/design/010-chunk.md.
#include <algorithm>

#include "libpasses/axis_rules.h"

namespace sg::axis {
namespace {

AxisState counts_of(KeySource source) {
  AxisState out;
  out.kind = AxisKind::partial;
  out.source = source;
  return out;
}

Along whole_axis(const AxisCall& c, uint32_t domain) { return {domain, 0, c.exprs.constant(1)}; }

// The sizes of a split list, each a number that the chunk read from its own counts.
struct Splits {
  std::vector<Expr> sizes;
  KeySource source;
};
Result<Splits> counted_splits(const AxisCall& c, std::string_view name) {
  Splits out;
  const Arg* list = c.find(name);
  if (list == nullptr || !list->is(ArgKind::list)) return c.fail("its split sizes are not known");
  for (const Arg& item : list->items()) {
    if (!item.is(ArgKind::value) || !c.state(item.as_value()).is_own_size())
      return c.fail("its split sizes are those of the whole: a chunk needs counts of its own");
    const AxisState& s = c.state(item.as_value());
    if (s.source.is_none() || (!out.sizes.empty() && !(s.source == out.source))) return c.fail("its split sizes do not come from one count");
    out.source = s.source;
    out.sizes.push_back(c.type(item.as_value()).value);
  }
  return out;
}

// Equal parts to every rank: element by element the same in every chunk.
Status exchange_partial(AxisCall& c, const AxisState& s) {
  const auto out = c.integers("output_split_sizes"), in = c.integers("input_split_sizes");
  if (!out || !in || *out != *in || std::ranges::adjacent_find(*out, std::not_equal_to<>()) != out->end())
    return c.fail("a sum over chunks is exchanged in unequal parts");
  KeySource source = s.source;
  source.received = !source.is_none() && !source.received;
  return c.give(counts_of(s.source.received ? KeySource() : source));
}

uint32_t exchanged_domain(AxisCall& c, uint32_t from, const Splits& in, const Splits& out) {
  for (uint32_t d = 0; d < c.world.domains.size(); ++d) {
    const AxisDomain& known = c.world.domains[d];
    if (known.before == from && known.sent == in.sizes && known.received == out.sizes) return d;
  }
  AxisDomain fresh;
  fresh.size = c.type(c.result(0)).shape[0];
  fresh.is_rows = false;
  fresh.source = out.source;
  fresh.before = from, fresh.sent = in.sizes, fresh.received = out.sizes;
  return c.world.add_domain(std::move(fresh));
}

}  // namespace

Status sort(AxisCall& c) {
  const ValueId self = c.tensor("self");
  const AxisState* s = c.along(self);
  const auto dim = c.dim("dim", c.rank(self), -1);
  if (s == nullptr || !dim) return c.fail("its axis is not known");
  if (*dim != s->along.axis) return along_dim(c);
  if (c.rank(self) != 1) return c.fail("each column would have an order of its own");
  if (!c.domain(s->along).is_rows || s->local) return c.fail("a sort of items in an order of each chunk's own is not followed");
  const Along sorted = s->along;
  AxisDomain fresh;
  fresh.size = c.extent(sorted), fresh.is_rows = false, fresh.sorted = sorted;
  fresh.source = {base_of(c, self), false};
  const Along a = whole_axis(c, c.world.add_domain(fresh));
  AxisState positions = along_state(a);
  positions.local = true, positions.target = sorted.domain, positions.target_unit = sorted.unit, positions.source = fresh.source;
  if (c.node.result_count == 2) SG_TRY(c.give_along(a));
  return c.give(positions);
}

Status histogram(AxisCall& c) {
  const ValueId self = c.tensor("self");
  const AxisState* s = c.along(self);
  if (s == nullptr || s->local) return c.fail("what it counts is not chunked along an axis");
  const Arg *low = c.find("min"), *high = c.find("max");
  if (low == nullptr || high == nullptr || *low == *high) return c.fail("its bins depend on all the data: give it a range");
  return c.give(counts_of({base_of(c, self), false}));
}

Status repeat_interleave(AxisCall& c) {
  const AxisState& s = c.state(c.tensor("repeats"));
  if (s.kind != AxisKind::partial || s.source.is_none()) return c.fail("its repeats are not counts of each chunk's own");
  const Arg* size = c.find("output_size");
  if (size == nullptr || !size->is(ArgKind::value) || !c.state(size->as_value()).is_own_size())
    return c.fail("the size of its result is not one of each chunk's own");
  AxisDomain fresh;
  fresh.size = c.type(c.result(0)).shape[0], fresh.is_rows = false, fresh.source = s.source;
  return c.give_along(whole_axis(c, c.world.add_domain(fresh)));
}

Status grouped_mm(AxisCall& c) {
  const ValueId x = c.tensor("self"), y = c.tensor("mat2"), offsets = c.tensor("offs");
  if (offsets.is_none() || c.state(offsets).kind != AxisKind::partial || !c.tensor("bias").is_none()) return c.fail("its groups are not counts of each chunk's own");
  const AxisState* s = c.along(x);
  if (s == nullptr || s->local || c.rank(x) != 2) return c.fail("its rows are not chunked along an axis");
  const Along a = s->along;
  if (c.domain(a).is_rows || !(c.domain(a).source == c.state(offsets).source) || c.state(offsets).source.is_none())
    return c.fail("its offsets do not count the keys that its rows are sorted by");
  if (c.rank(y) == 3 && a.axis == 0) {
    SG_TRY(c.want_whole(y, "the weight"));
    return c.give_along(a);
  }
  if (c.rank(y) == 2 && a.axis == 1) {
    SG_TRY(c.want(y, {a.domain, 0, a.unit}));
    return c.give(counts_of(KeySource()));
  }
  return c.fail("the groups lie along another axis than the chunked one");
}

Status exchange(AxisCall& c) {
  const AxisState s = c.state(c.tensor("input"));
  if (s.kind == AxisKind::partial) return exchange_partial(c, s);
  if (s.kind != AxisKind::along || s.along.axis != 0 || s.local) return c.fail("what it exchanges is not chunked along axis 0");
  if (c.domain(s.along).is_rows || c.exprs.constant_value(s.along.unit) != 1) return c.fail("rows are exchanged that were not sorted by where they go");
  SG_ASSIGN(const Splits in, counted_splits(c, "input_split_sizes"));
  SG_ASSIGN(const Splits out, counted_splits(c, "output_split_sizes"));
  const AxisDomain& from = c.domain(s.along);
  if (!(in.source == from.source) || out.source.keys != in.source.keys || out.source.received == in.source.received)
    return c.fail("its split sizes do not count the keys that its rows are sorted by");
  if (from.before != kNoDomain && from.received == in.sizes && from.sent == out.sizes) return c.give_along(whole_axis(c, from.before));
  if (in.source.received) return c.fail("items are exchanged a second time, and not back");
  return c.give_along(whole_axis(c, exchanged_domain(c, s.along.domain, in, out)));
}

Status reduce_ranks(AxisCall& c) {
  const AxisState s = c.state(c.tensor("input"));
  const Arg* op = c.find("reduce_op");
  const std::string_view word = op != nullptr && op->is(ArgKind::string) ? c.graph.pool().strings[op->as_text()] : std::string_view();
  if (s.kind == AxisKind::partial && (word == "sum" || word == "avg")) return c.give_all(s);
  if (s.kind == AxisKind::along && !s.local && c.domain(s.along).is_rows && c.op.name == "_c10d_functional.all_reduce.default") return c.give_all(along_state(s.along));
  return c.fail("a collective over chunked values");
}

Status read_number(AxisCall& c) {
  const AxisState& s = c.state(c.tensor("self"));
  if (s.kind != AxisKind::partial || s.source.is_none()) return c.fail("the host reads a number that depends on the chunk, and is no count");
  AxisState out;
  out.kind = AxisKind::size;
  out.source = s.source;
  return c.give(out);
}

namespace {

// The length of another axis than the chunked one is the same in every chunk.
bool is_other_length(const AxisCall& c) {
  if (c.op.name != "aten.sym_size.int") return false;
  const AxisState* s = c.along(c.tensor("self"));
  const auto dim = s != nullptr ? c.dim("dim", c.rank(c.tensor("self")), 0) : std::nullopt;
  return dim && *dim != s->along.axis;
}

}  // namespace

Status size(AxisCall& c) {
  AxisState out;
  out.kind = AxisKind::size;
  out.common = is_other_length(c);
  if (out.common) return c.give_all(out);
  bool first = true;
  auto meet = [&](uint32_t domain, KeySource source) {
    if (first) out.along.domain = domain, out.source = source;
    else if (out.along.domain != domain) out.along.domain = kNoDomain;
    if (!first && !(out.source == source)) out.source = KeySource();
    first = false;
  };
  for (const Arg& arg : c.node.args)
    arg.walk([&](const Arg& a) {
      if (!a.is(ArgKind::value)) return;
      const AxisState& s = c.state(a.as_value());
      if (s.kind == AxisKind::along) meet(s.along.domain, c.domain(s.along).source);
      if (s.is_own_size()) meet(s.along.domain, s.source);
    });
  return c.give_all(out);
}

Status sized_factory(AxisCall& c) {
  const Arg* list = c.find("size");
  if (list == nullptr || !list->is(ArgKind::list)) return c.fail("its size is not known");
  std::optional<Along> found;
  for (size_t i = 0; i < list->items().size(); ++i) {
    const Arg& item = list->items()[i];
    if (!item.is(ArgKind::value) || !c.state(item.as_value()).is_own_size()) continue;
    const uint32_t domain = c.state(item.as_value()).along.domain;
    if (found || domain == kNoDomain) return c.fail("which of its axes is chunked is not known");
    const Expr whole = c.type(c.result(0)).shape[i], unit = c.exprs.floordiv(whole, c.world.domains[domain].size);
    if (c.exprs.mul(unit, c.world.domains[domain].size) != whole) return c.fail("axis " + std::to_string(i) + " is no multiple of the chunked rows");
    found = Along{domain, static_cast<uint32_t>(i), unit};
  }
  if (!found) return c.fail("its size is not one of each chunk's own");
  return c.give_along(*found);
}

Status arange(AxisCall& c) {
  const Arg* end = c.find("end");
  if (end == nullptr || !end->is(ArgKind::value) || c.op.name != "aten.arange.default") return c.fail("where it ends is not one size of each chunk's own");
  const AxisState& s = c.state(end->as_value());
  if (!s.is_own_size() || s.along.domain == kNoDomain) return c.fail("where it ends is not one size of each chunk's own");
  const Expr whole = c.type(c.result(0)).shape[0], rows = c.world.domains[s.along.domain].size, unit = c.exprs.floordiv(whole, rows);
  if (c.exprs.mul(unit, rows) != whole) return c.fail("it is no multiple of the chunked rows");
  AxisState out = along_state({s.along.domain, 0, unit});
  out.local = true, out.target = s.along.domain, out.target_unit = unit, out.source = s.source;
  return c.give(out);
}

Status assertion(AxisCall& c) {
  for (ValueId v : c.tensors())
    if (!c.is_whole(v)) return c.fail("an assertion about chunked values");
  return ok_status();
}

}  // namespace sg::axis
