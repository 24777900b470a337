// Axis rules of data-dependent routing: sorts, counts, exchanges with counted splits, grouped products.
//
// In a dispatch, rows are sorted by keys (which expert), the keys are counted, and the counts give the length of each
// rank's and each expert's part. A chunk that sorts and counts its own rows routes each row to the same place as the
// whole does. Count tables (count_table.h) tie sort, counts, positions and offsets together: each says which keys it
// counts, and in which order.
#include <algorithm>

#include "libpasses/axis/axis_rules.h"

namespace sg::axis {
namespace {

Along whole_axis(const AxisCall& c, uint32_t domain) { return {domain, 0, c.exprs.constant(1)}; }

// The sizes of a split list, each read from the chunk's own counts.
struct Splits {
  std::vector<Expr> sizes;
  uint32_t table = kNoTable;
};
Result<Splits> counted_splits(const AxisCall& c, std::string_view name) {
  Splits out;
  const Arg* list = c.find(name);
  if (list == nullptr || !list->is(ArgKind::list)) return c.fail("its split sizes are not known");
  for (const Arg& item : list->items()) {
    if (!item.is(ArgKind::value) || !c.state(item.as_value()).is_own_size())
      return c.fail("its split sizes are those of the whole: a chunk needs counts of its own");
    const AxisState& s = c.state(item.as_value());
    if (s.table == kNoTable || (!out.sizes.empty() && s.table != out.table))
      return c.fail("its split sizes do not come from one count");
    if (s.cell != out.sizes.size()) return c.fail("its split sizes are not in the order of their counts");
    out.table = s.table;
    out.sizes.push_back(c.type(item.as_value()).value);
  }
  if (out.sizes.empty() || length_of(c.world.tables[out.table]) != static_cast<int64_t>(out.sizes.size()))
    return c.fail("its split sizes are not all that was counted");
  return out;
}

GroupId group_of(const AxisCall& c) {
  const Arg* group = c.find("group_name");
  return group != nullptr && group->is(ArgKind::group) ? group->as_group() : GroupId();
}

// An exchange in equal parts acts element by element, the same in every chunk, so sums stay sums. Counts of all keys
// become the counts received from each rank.
Status exchange_partial(AxisCall& c, const AxisState& s) {
  const auto out = c.integers("output_split_sizes"), in = c.integers("input_split_sizes");
  if (!out || !in || *out != *in || std::ranges::adjacent_find(*out, std::not_equal_to<>()) != out->end())
    return c.fail("a sum over chunks is exchanged in unequal parts");
  AxisState sum;
  sum.kind = AxisKind::partial;
  const CountTable* table = table_of(c, s);
  const int64_t n = table != nullptr ? length_of(*table) : 0, ranks = static_cast<int64_t>(in->size());
  if (table == nullptr || table->source.received || s.cell != kNoTable || !(*table == root_table(table->source, n)) ||
      ranks == 0 || n % ranks != 0)
    return c.give(sum);
  return c.give(counts_state(c, root_table({table->source.keys, true, ranks, group_of(c)}, n)));
}

uint32_t exchanged_domain(AxisCall& c, uint32_t from, const Splits& in, const Splits& out) {
  for (uint32_t d = 0; d < c.world.domains.size(); ++d) {
    const AxisDomain& known = c.world.domains[d];
    if (known.before == from && known.sent == in.sizes && known.received == out.sizes && known.group == group_of(c))
      return d;
  }
  const CountTable& counts = c.world.tables[out.table];
  AxisDomain fresh;
  fresh.size = c.type(c.result(0)).shape[0];
  fresh.is_rows = false;
  fresh.source = counts.source;
  CountTable layout{counts.source, counts.cells, {}, Scan::counts, {}};
  for (size_t i = 0; i < counts.cells.size(); ++i) layout.order.push_back(static_cast<uint8_t>(i));
  fresh.layout = c.world.add_table(std::move(layout));
  fresh.before = from, fresh.sent = in.sizes, fresh.received = out.sizes, fresh.group = group_of(c);
  return c.world.add_domain(std::move(fresh));
}

// Proves that items go where their keys say, and arrive in the order in which the counts arrived.
Status check_exchange(const AxisCall& c, uint32_t from, const Splits& in, const Splits& out) {
  const CountTable &sent = c.world.tables[in.table], &received = c.world.tables[out.table];
  const auto layout = layout_of(c, from, sent),
             coming = received.source.received ? std::optional(received) : std::nullopt;
  const bool sends = layout && !sent.source.received && sent.scan == Scan::counts && leads(sent, *layout);
  const KeySource wanted{sent.source.keys, true, static_cast<int64_t>(out.sizes.size()), group_of(c)};
  CountTable all{received.source, received.cells, {}, Scan::counts, {}};
  for (size_t i = 0; i < received.cells.size(); ++i) all.order.push_back(static_cast<uint8_t>(i));
  if (!sends || !coming || !(received.source == wanted) || received.scan != Scan::counts || !leads(received, all))
    return c.fail("its split sizes are not proven to count the keys that its rows are sorted by");
  return ok_status();
}

}  // namespace

Status sort(AxisCall& c) {
  const ValueId self = c.tensor("self");
  const AxisState* s = c.along(self);
  const auto dim = c.dim("dim", c.rank(self), -1);
  if (s == nullptr || !dim) return c.fail("its axis is not known");
  if (*dim != s->along.axis) return along_dim(c);
  if (c.rank(self) != 1) return c.fail("each column would have an order of its own");
  if (!c.domain(s->along).is_rows || s->local)
    return c.fail("a sort of items in an order of each chunk's own is not followed");
  const Along sorted = s->along;
  AxisDomain fresh;
  fresh.size = c.extent(sorted), fresh.is_rows = false, fresh.sorted = sorted;
  const bool ascending = !c.boolean("descending", false);
  if (ascending) fresh.source = {base_of(c, self)};
  const Along a = whole_axis(c, c.world.add_domain(fresh));
  AxisState positions = along_state(a);
  positions.local = true, positions.target = sorted.domain, positions.target_unit = sorted.unit,
  positions.source = fresh.source;
  if (c.node.result_count == 2) SG_TRY(c.give_along(a));
  return c.give(positions);
}

namespace {

std::optional<double> number(const AxisCall& c, std::string_view name) {
  const Arg* arg = c.find(name);
  if (arg != nullptr && arg->is(ArgKind::integer)) return static_cast<double>(arg->as_int());
  return arg != nullptr && arg->is(ArgKind::floating) ? std::optional(arg->as_float()) : std::nullopt;
}

}  // namespace

Status histogram(AxisCall& c) {
  const ValueId self = c.tensor("self");
  const AxisState* s = c.along(self);
  if (s == nullptr || s->local) return c.fail("what it counts is not chunked along an axis");
  const auto low = number(c, "min"), high = number(c, "max");
  if (!low || !high || *low == *high) return c.fail("its bins depend on all the data: give it a range");
  const auto keys = keys_below(c, self);
  AxisState sum;
  sum.kind = AxisKind::partial;
  if (!keys || *low > 0 || *high < static_cast<double>(*keys - 1))
    return c.give(sum);  // keys outside the range are not counted
  return c.give(counts_state(c, root_table({base_of(c, self)}, c.integer("bins", 100))));
}

// As long as the largest key says, and in every chunk no longer than `minlength`, if the whole is not.
Status bincount(AxisCall& c) {
  const ValueId self = c.tensor("self"), weights = c.tensor("weights");
  SG_ASSIGN(const ValueId first, c.first_along());
  const Along a = c.state(first).along;
  if (c.state(first).local) return c.fail("positions of each chunk's own");
  const std::vector<Expr>& counts = c.type(c.result(0)).shape;  // empty: the graph does not record its type
  const auto least = c.integer("minlength"), length = counts.empty() ? std::nullopt : c.exprs.constant_value(counts[0]);
  if (!least || !length || *length != *least)
    return c.fail("a chunk may have fewer counts than the whole: how many there are depends on the data");
  SG_TRY(c.want(self, a));
  if (!weights.is_none()) SG_TRY(c.want(weights, a));
  const auto keys = keys_below(c, self);
  AxisState sum;
  sum.kind = AxisKind::partial;
  if (!weights.is_none() || !keys || *keys > *least) return c.give(sum);
  return c.give(counts_state(c, root_table({base_of(c, self)}, *least)));
}

Status repeat_interleave(AxisCall& c) {
  const AxisState& s = c.state(c.tensor("repeats"));
  const CountTable* table = table_of(c, s);
  if (s.kind != AxisKind::partial || table == nullptr || table->scan != Scan::counts ||
      c.rank(c.tensor("repeats")) != 1)
    return c.fail("its repeats are not counts of each chunk's own");
  const Arg* size = c.find("output_size");
  if (size == nullptr || !size->is(ArgKind::value) || !c.state(size->as_value()).is_own_size())
    return c.fail("the size of its result is not one of each chunk's own");
  AxisDomain fresh;
  fresh.size = c.type(c.result(0)).shape[0], fresh.is_rows = false, fresh.source = s.source, fresh.layout = s.table;
  AxisState out = along_state(whole_axis(c, c.world.add_domain(fresh)));
  out.form.part = true;
  return c.give(out);
}

Status grouped_mm(AxisCall& c) {
  const ValueId x = c.tensor("self"), y = c.tensor("mat2"), offsets = c.tensor("offs");
  const CountTable* ends = offsets.is_none() ? nullptr : table_of(c, c.state(offsets));
  if (ends == nullptr || c.state(offsets).kind != AxisKind::partial || !c.tensor("bias").is_none())
    return c.fail("its groups are not counts of each chunk's own");
  const AxisState* s = c.along(x);
  if (s == nullptr || s->local || c.rank(x) != 2) return c.fail("its rows are not chunked along an axis");
  const Along a = s->along;
  const auto layout = layout_of(c, a.domain, *ends);
  if (c.domain(a).is_rows || c.exprs.constant_value(a.unit) != 1 || !layout || ends->scan != Scan::up_to ||
      !same_parts(*ends, scanned_parts(*ends)) || !leads(*ends, *layout))
    return c.fail("its offsets are not proven to count the parts that its rows lie in");
  if (c.rank(y) == 3 && a.axis == 0) {
    SG_TRY(c.want_whole(y, "the weight"));
    return c.give_along(a);
  }
  if (c.rank(y) == 2 && a.axis == 1) {
    SG_TRY(c.want(y, {a.domain, 0, a.unit}));
    AxisState sum;
    sum.kind = AxisKind::partial;
    return c.give(sum);
  }
  return c.fail("the groups lie along another axis than the chunked one");
}

Status exchange(AxisCall& c) {
  const AxisState s = c.state(c.tensor("input"));
  if (s.kind == AxisKind::partial) return exchange_partial(c, s);
  if (s.kind != AxisKind::along || s.along.axis != 0 || s.local)
    return c.fail("what it exchanges is not chunked along axis 0");
  if (c.domain(s.along).is_rows || c.exprs.constant_value(s.along.unit) != 1)
    return c.fail("rows are exchanged that were not sorted by where they go");
  SG_ASSIGN(const Splits in, counted_splits(c, "input_split_sizes"));
  SG_ASSIGN(const Splits out, counted_splits(c, "output_split_sizes"));
  const AxisDomain& from = c.domain(s.along);
  if (from.before != kNoDomain && from.received == in.sizes && from.sent == out.sizes && from.group == group_of(c))
    return c.give_along(whole_axis(c, from.before));
  SG_TRY(check_exchange(c, s.along.domain, in, out));
  return c.give_along(whole_axis(c, exchanged_domain(c, s.along.domain, in, out)));
}

namespace {

// The state of an input chunked along its rows, not items: a chunk then holds the same rows on every rank.
const AxisState* rows_of_each_rank(const AxisCall& c) {
  const AxisState* s = c.along(c.tensor("input"));
  return s != nullptr && !s->local && c.domain(s->along).is_rows ? s : nullptr;
}

Along with_runs(const AxisCall& c, Along a, int64_t runs) {
  a.runs = runs == 1 ? Expr() : c.exprs.constant(runs);
  return a;
}

// Each rank gets its part of axis 0, which must consist of whole runs of the rows.
Status scatter_runs(AxisCall& c, const Along& a) {
  const auto ranks = c.integer("group_size"),
             runs = a.runs ? c.exprs.constant_value(a.runs) : std::optional<int64_t>(1);
  if (!ranks || !runs || *runs % *ranks != 0) return c.fail("ranks get parts of the chunked rows");
  return c.give_along(with_runs(c, a, *runs / *ranks));
}

}  // namespace

Status reduce_ranks(AxisCall& c) {
  const AxisState s = c.state(c.tensor("input"));
  const Arg* op = c.find("reduce_op");
  const std::string_view word =
      op != nullptr && op->is(ArgKind::string) ? c.graph.pool().strings[op->as_text()] : std::string_view();
  if (s.kind == AxisKind::partial && (word == "sum" || word == "avg")) return c.give_all(s);
  if (rows_of_each_rank(c) == nullptr) return c.fail("a collective over chunked values");
  if (c.op.name == "_c10d_functional.reduce_scatter_tensor.default" && s.along.axis == 0)
    return scatter_runs(c, s.along);
  return c.give_along(s.along);
}

Status gather_ranks(AxisCall& c) {
  const AxisState* s = rows_of_each_rank(c);
  const auto ranks = c.integer("group_size");
  if (s == nullptr || !ranks) return c.fail("a collective over chunked values");
  if (s->along.axis != 0) return c.give_along(s->along);
  const auto runs = s->along.runs ? c.exprs.constant_value(s->along.runs) : std::optional<int64_t>(1);
  if (!runs) return c.fail("it gathers an axis with an unknown number of runs");
  return c.give_along(with_runs(c, s->along, *runs * *ranks));
}

Status read_number(AxisCall& c) {
  const AxisState& s = c.state(c.tensor("self"));
  const CountTable* table = table_of(c, s);
  if (s.kind != AxisKind::partial || table == nullptr || (s.cell == kNoTable && length_of(*table) != 1))
    return c.fail("the host reads a number that depends on the chunk, and is not a count");
  AxisState out;
  out.kind = AxisKind::size;
  out.source = s.source, out.table = s.table, out.cell = s.cell == kNoTable ? 0 : s.cell;
  return c.give(out);
}

namespace {

// The length of an axis other than the chunked one is the same in every chunk.
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
  out.common = first;
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
    if (c.exprs.mul(unit, c.world.domains[domain].size) != whole)
      return c.fail("axis " + std::to_string(i) + " is not a multiple of the chunked rows");
    found = Along{domain, static_cast<uint32_t>(i), unit};
  }
  if (!found) return c.fail("its size is not one of each chunk's own");
  return c.give_along(*found);
}

Status arange(AxisCall& c) {
  const Arg* end = c.find("end");
  if (end == nullptr || !end->is(ArgKind::value) || c.op.name != "aten.arange.default")
    return c.fail("where it ends is not one size of each chunk's own");
  const AxisState& s = c.state(end->as_value());
  if (!s.is_own_size() || s.along.domain == kNoDomain)
    return c.fail("where it ends is not one size of each chunk's own");
  const Expr whole = c.type(c.result(0)).shape[0], rows = c.world.domains[s.along.domain].size,
             unit = c.exprs.floordiv(whole, rows);
  if (c.exprs.mul(unit, rows) != whole) return c.fail("it is not a multiple of the chunked rows");
  AxisState out = along_state({s.along.domain, 0, unit});
  out.local = true, out.target = s.along.domain, out.target_unit = unit, out.source = s.source;
  out.form.place = c.exprs.constant_value(unit) == 1;
  return c.give(out);
}

Status assertion(AxisCall& c) {
  if (c.op.name == "aten._linalg_check_errors.default") return ok_status();  // one word for each matrix
  for (ValueId v : c.tensors())
    if (!c.is_whole(v)) return c.fail("an assertion about chunked values");
  return ok_status();
}

}  // namespace sg::axis
