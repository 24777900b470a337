// Counts of keys, and the positions that a dispatch computes from them: what the rules prove about both
// (count_table.h).
#include <algorithm>

#include "libpasses/axis/axis_rules.h"

namespace sg::axis {
namespace {

std::optional<std::vector<int64_t>> sizes_of(const AxisCall& c, ValueId v) {
  std::vector<int64_t> out;
  for (Expr e : c.type(v).shape) {
    const auto n = c.exprs.constant_value(e);
    if (!n) return std::nullopt;
    out.push_back(*n);
  }
  return out;
}

bool any_of(std::string_view op, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, op) != names.end();
}

bool keeps_order(const AxisCall& c) {
  const std::string_view op = c.op.name;
  if (any_of(op, {"aten._to_copy.default", "aten.to.dtype"})) return keeps_whole_numbers(c.graph, c.id);
  return any_of(op, {"aten.clone.default", "aten.alias.default", "aten.detach.default", "aten.contiguous.default",
                     "aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.view_copy.default",
                     "aten.flatten.using_ints", "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims",
                     "aten.unsqueeze.default"});
}

std::optional<std::vector<size_t>> new_axes(const AxisCall& c, size_t rank) {
  std::vector<size_t> axes(rank);
  for (size_t i = 0; i < rank; ++i) axes[i] = i;
  if (c.op.name == "aten.permute.default" || c.op.name == "aten.permute_copy.default") {
    const auto dims = c.integers("dims");
    if (!dims || dims->size() != rank) return std::nullopt;
    for (size_t i = 0; i < rank; ++i) axes[i] = *c.wrap((*dims)[i], rank);
    return axes;
  }
  const auto x = c.dim("dim0", rank, 0), y = c.dim("dim1", rank, 1);
  if (rank >= 2 && x && y) std::swap(axes[*x], axes[*y]);
  return axes;
}

std::optional<CountTable> table_after(const AxisCall& c, const CountTable& t, ValueId self) {
  const std::string_view op = c.op.name;
  if (keeps_order(c)) return t;
  const auto sizes = sizes_of(c, self);
  if (!sizes) return std::nullopt;
  if (any_of(op, {"aten.t.default", "aten.numpy_T.default", "aten.transpose.int", "aten.permute.default",
                  "aten.permute_copy.default"})) {
    const auto axes = new_axes(c, sizes->size());
    return axes ? permuted(t, *sizes, *axes) : std::nullopt;
  }
  if (any_of(op, {"aten.sum.default", "aten.sum.dim_IntList"})) {
    std::vector<bool> gone(sizes->size(), true);
    if (const auto dims = c.integers("dim"); dims && !dims->empty()) {
      gone.assign(sizes->size(), false);
      for (int64_t d : *dims) gone[*c.wrap(d, sizes->size())] = true;
    }
    return summed(t, *sizes, gone);
  }
  if (op == "aten.cumsum.default" && sizes->size() == 1) return running(t);
  if (op == "aten.sub.Tensor" && c.find("alpha") == nullptr) {
    const ValueId other = c.tensor("other");
    const CountTable* counts = other.is_none() ? nullptr : table_of(c, c.state(other));
    return counts != nullptr ? without_own(t, *counts) : std::nullopt;
  }
  return std::nullopt;
}

// The domain whose items, part by part, stand at the positions `form` of `domain`; none if that is not proven.
uint32_t reordered(AxisCall& c, uint32_t domain, const PartForm& form) {
  if (!form.place || form.part || form.plus == kNoTable || form.minus == kNoTable) return kNoDomain;
  const CountTable &begins = c.world.tables[form.plus], &own = c.world.tables[form.minus];
  const auto layout = layout_of(c, domain, own);
  if (!layout || begins.scan != Scan::before || own.scan != Scan::before) return kNoDomain;
  if (!same_parts(begins, *layout) || !same_parts(own, *layout) || !same_parts(scanned_parts(own), *layout))
    return kNoDomain;
  const CountTable from = scanned_parts(begins);
  for (uint32_t d = static_cast<uint32_t>(c.world.domains.size()); d-- > 0;) {
    if (d == domain || c.world.domains[d].is_rows) continue;
    const auto other = layout_of(c, d, from);
    if (!other || !same_parts(from, *other)) continue;
    uint32_t& of = c.world.domains[domain].of;
    if (of != kNoDomain && of != d) continue;
    of = d;
    return d;
  }
  return kNoDomain;
}

}  // namespace

AxisState counts_state(AxisCall& c, CountTable table) {
  AxisState out;
  out.kind = AxisKind::partial;
  out.source = table.source;
  out.table = c.world.add_table(std::move(table));
  return out;
}

const CountTable* table_of(const AxisCall& c, const AxisState& s) {
  return s.table == kNoTable ? nullptr : &c.world.tables[s.table];
}

std::vector<AxisState> counts_after(AxisCall& c) {
  AxisState lost;
  lost.kind = AxisKind::partial;
  std::vector<AxisState> out(c.node.result_count, lost);
  const ValueId self = c.tensor("self");
  if (self.is_none() || table_of(c, c.state(self)) == nullptr || out.empty()) return out;
  const AxisState was = c.state(self);
  const CountTable t = *table_of(c, was);
  const bool takes_apart = c.op.name == "aten.unbind.int" || c.op.name == "aten.select.int";
  if (was.cell != kNoTable) {
    if (keeps_order(c)) out[0] = was;
  } else if (takes_apart && c.rank(self) == 1) {
    const int64_t first = c.op.name == "aten.select.int" ? c.integer("index", 0) : 0;
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = was;
      out[i].cell = static_cast<uint32_t>(first < 0 ? first + length_of(t) : first) + static_cast<uint32_t>(i);
    }
  } else if (auto after = table_after(c, t, self)) {
    out[0] = counts_state(c, std::move(*after));
  }
  return out;
}

std::optional<CountTable> layout_of(const AxisCall& c, uint32_t domain, const CountTable& like) {
  const AxisDomain& d = c.world.domains[domain];
  if (d.layout != kNoTable) return c.world.tables[d.layout];
  if (d.is_rows || d.source.is_none() || !(d.source == like.source)) return std::nullopt;
  CountTable out{like.source, like.cells, {}, Scan::counts, {}};
  for (size_t i = 0; i < like.cells.size(); ++i) out.order.push_back(static_cast<uint8_t>(i));
  return out;
}

void combine_forms(AxisCall& c, AxisState* out) {
  const bool adds = c.op.name == "aten.add.Tensor", subtracts = c.op.name == "aten.sub.Tensor";
  const AxisState *x = c.along(c.tensor("self")), *y = c.along(c.tensor("other"));
  if ((!adds && !subtracts) || c.find("alpha") != nullptr || x == nullptr || y == nullptr || x->form.is_none() ||
      y->form.is_none())
    return;
  PartForm form = x->form;
  const PartForm& other = y->form;
  if (form.part || other.part || (subtracts && (other.place || other.minus != kNoTable))) return;
  auto put = [](uint32_t* slot, uint32_t table) {
    const bool free = *slot == kNoTable || table == kNoTable;
    if (table != kNoTable) *slot = table;
    return free;
  };
  if (other.place && form.place) return;
  form.place = form.place || other.place;
  if (adds ? !put(&form.plus, other.plus) || !put(&form.minus, other.minus) : !put(&form.minus, other.plus)) return;
  out->form = form;
  if (const uint32_t target = reordered(c, out->along.domain, form); target != kNoDomain)
    out->target = target, out->target_unit = c.exprs.constant(1);
}

std::optional<int64_t> keys_below(const AxisCall& c, ValueId keys) {
  keys = base_of(c, keys);
  const NodeId def = c.graph.value(keys).def;
  const std::string_view op = def ? c.graph.op_name(def) : std::string_view();
  const bool picks =
      any_of(op, {"aten.topk.default", "aten.max.dim", "aten.min.dim", "aten.sort.default", "aten.sort.stable"}) &&
      c.graph.value(keys).index == 1;
  if (!picks &&
      !any_of(op, {"aten.argmax.default", "aten.argmin.default", "aten.argsort.default", "aten.argsort.stable"}))
    return std::nullopt;
  AxisCall made(&c.world, c.program, def);
  const ValueId self = made.tensor("self");
  if (self.is_none() || (made.find("dim") == nullptr && !picks && op.find("argsort") == op.npos)) return std::nullopt;
  const auto dim = made.dim("dim", made.rank(self), -1);
  return dim ? c.exprs.constant_value(made.type(self).shape[*dim]) : std::nullopt;
}

bool keys_differ_in_row(const AxisCall& c, ValueId keys) {
  const std::vector<Expr>& shape = c.type(keys).shape;
  if (shape.size() == 2 && c.exprs.constant_value(shape[1]) == 1) return true;
  const NodeId def = c.graph.value(c.world.equal[keys.index]).def;
  const std::string_view op = def ? c.graph.op_name(def) : std::string_view();
  if (op != "aten.topk.default") return false;
  AxisCall made(&c.world, c.program, def);
  return made.dim("dim", made.rank(made.tensor("self")), -1) == size_t{1};
}

}  // namespace sg::axis
