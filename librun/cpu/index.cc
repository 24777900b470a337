// Reading and writing by tensors of indices: index, index_put, index_select, index_add, take, embedding.
#include <algorithm>
#include <cmath>

#include "librun/cpu/fill.h"
#include "librun/cpu/indices.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/selection.h"
#include "librun/element.h"
#include "librun/work/renorm.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

// --- several index tensors ---

bool is_mask(const Tensor& t) { return t.dtype == DType::boolean || t.dtype == DType::u8; }

// Replaces a mask by one vector of positions for each of its axes.
void add_positions(KernelCall& call, const Tensor& mask, std::vector<Tensor>* out) {
  Tensor flags = contiguous_as(call, mask, DType::boolean);
  int64_t n = 0, total = flags.elements();
  for (int64_t i = 0; i < total; ++i) n += flags.as<bool>()[i];
  std::vector<Tensor> axes;
  for (int axis = 0; axis < mask.rank; ++axis) axes.push_back(call.scratch().tensor(DType::i64, std::array{n}));
  int64_t k = 0;
  for (int64_t i = 0; i < total; ++i) {
    if (!flags.as<bool>()[i]) continue;
    int64_t rest = i;
    for (int axis = mask.rank - 1; axis >= 0; --axis) {
      axes[static_cast<size_t>(axis)].as<int64_t>()[k] = rest % mask.dim(axis);
      rest /= mask.dim(axis);
    }
    ++k;
  }
  out->insert(out->end(), axes.begin(), axes.end());
}

struct Picks {
  std::vector<Tensor> indices;  // one per axis of self, none where it is kept
  std::vector<int64_t> shape;   // the common broadcast shape of the indices
  int first = 0;                // position of their axes in the result
  bool together = true;         // the indexed axes are adjacent
};

Result<Picks> picks_of(KernelCall& call, const Tensor& self) {
  Picks picks;
  for (const Tensor& index : call.tensors("indices")) {
    if (!index.is_none() && is_mask(index)) add_positions(call, index, &picks.indices);
    else picks.indices.push_back(index);
  }
  if (picks.indices.size() > static_cast<size_t>(self.rank)) return call.fail("there are more indices than axes");
  picks.indices.resize(static_cast<size_t>(self.rank));
  int runs = 0, first = -1;
  for (int axis = 0; axis < self.rank; ++axis) {
    const Tensor& index = picks.indices[static_cast<size_t>(axis)];
    if (index.is_none()) continue;
    if (first < 0) first = axis;
    runs += axis == 0 || picks.indices[static_cast<size_t>(axis - 1)].is_none();
    SG_TRY(broadcast_index(call, &picks.shape, index));
  }
  picks.together = runs <= 1;
  picks.first = picks.together ? std::max(first, 0) : 0;
  return picks;
}

// The axes of self, reordered to outer, indexed, inner.
struct Arranged {
  Tensor kept;  // outer and inner axes
  int outer = 0;
};

Arranged arrange(const Tensor& self, const Picks& picks) {
  Arranged a;
  a.kept = self;
  a.kept.rank = 0;
  a.outer = picks.first;
  for (int axis = 0; axis < self.rank; ++axis) {
    if (!picks.indices[static_cast<size_t>(axis)].is_none()) continue;
    auto at = static_cast<size_t>(a.kept.rank++);
    a.kept.shape[at] = self.dim(axis);
    a.kept.stride[at] = self.step(axis);
  }
  return a;
}

std::vector<int64_t> picked_shape(const Arranged& a, const Picks& picks) {
  std::vector<int64_t> shape(a.kept.sizes().begin(), a.kept.sizes().end());
  shape.insert(shape.begin() + a.outer, picks.shape.begin(), picks.shape.end());
  return shape;
}

Result<Selection> pick(KernelCall& call, const Tensor& self, const Picks& picks) {
  Arranged a = arrange(self, picks);
  Selection s = whole_selection(call, a.kept, a.outer, 0);
  s.tensor = self;
  int64_t n = 1;
  for (int64_t size : picks.shape) n *= size;
  auto* at = call.scratch().take<int64_t>(std::max<int64_t>(n, 1));
  std::fill_n(at, n, int64_t{0});
  for (int axis = 0; axis < self.rank; ++axis) {
    const Tensor& given = picks.indices[static_cast<size_t>(axis)];
    if (given.is_none()) continue;
    Tensor index = contiguous_as(call, broadcast_to(given, picks.shape), DType::i64);
    IndexCheck check;
    for (int64_t i = 0; i < n; ++i) at[i] += check.wrap(index.as<int64_t>()[i], self.dim(axis), i) * self.step(axis);
    if (Status held = check.status(call, index.as<int64_t>(), self.dim(axis)); !held.ok()) {
      Error error = held.error();
      error.message += " of axis " + std::to_string(axis);
      return error;
    }
  }
  s.picked = {at, n};
  return s;
}

int axes_of(const Picks& picks) { return static_cast<int>(picks.shape.size()); }

Status index(KernelCall& call) {
  Tensor self = call.tensor("self");
  if (self.conjugate) self = contiguous(call, self);
  SG_ASSIGN(Picks picks, picks_of(call, self));
  std::vector<int64_t> shape = picked_shape(arrange(self, picks), picks);
  SG_TRY(result_of_shape(call, 0, shape));
  const Tensor& out = call.result();
  SG_ASSIGN(Selection from, pick(call, self, picks));
  copy_selection_once(call, whole_selection(call, out, picks.first, axes_of(picks)), from);
  return ok_status();
}

// The result starts as a copy of `self`, unless the op writes to `self`.
void start_from(KernelCall& call, const Tensor& self) {
  const Tensor& out = call.result();
  if (out.data != self.data || !std::ranges::equal(out.strides(), self.strides())) copy(call, out, self);
}

// `t` itself, or converted if its elements differ from those of `like`.
Tensor alike(KernelCall& call, const Tensor& t, const Tensor& like) {
  return t.dtype == like.dtype && !t.conjugate ? t : contiguous_as(call, t, like.dtype);
}

Status index_put(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  start_from(call, self);
  const Tensor& out = call.result();
  SG_ASSIGN(Picks picks, picks_of(call, self));
  SG_ASSIGN(Selection to, pick(call, out, picks));
  std::vector<int64_t> shape = picked_shape(arrange(self, picks), picks), given(shape);
  Tensor values = alike(call, call.tensor("values"), self);
  SG_TRY(broadcast_index(call, &given, values));
  if (given != shape) return call.fail("the values do not broadcast to what the indices pick");
  if (shape.size() > static_cast<size_t>(kMaxRank))
    return call.fail("what the indices pick has more than " + std::to_string(kMaxRank) + " axes");
  Selection from = whole_selection(call, broadcast_to(values, shape), picks.first, axes_of(picks));
  if (call.flag("accumulate")) add_selection(call, to, from, Scalar::integer(1));
  else copy_selection(call, to, from);
  return ok_status();
}

// --- one axis ---

Tensor index_vector(KernelCall& call, std::string_view name) {
  return contiguous_as(call, call.tensor(name), DType::i64);
}

Status index_select(KernelCall& call) {
  Tensor self = call.tensor("self");
  if (self.conjugate) self = contiguous(call, self);
  int64_t axis = call.integer("dim");
  SG_ASSIGN(Selection from, axis_selection(call, self, axis, index_vector(call, "index"), false));
  Tensor out = with_axis(call.result());
  copy_selection_once(call, whole_selection(call, out, wrap_axis(axis, out.rank), 1), from);
  return ok_status();
}

// Matching selections of the result and of a source.
struct Placement {
  Selection to, from;
};

// `wraps`: negative indices count from the end.
Result<Placement> placement(KernelCall& call, const Tensor& source, bool wraps = false) {
  start_from(call, call.tensor("self"));
  int64_t axis = call.integer("dim");
  Tensor index = index_vector(call, "index");
  SG_ASSIGN(Selection to, axis_selection(call, call.result(), axis, index, wraps));
  Tensor given = with_axis(alike(call, source, call.result()));
  Tensor expected = with_axis(call.result());
  expected.shape[static_cast<size_t>(wrap_axis(axis, expected.rank))] = index.elements();
  if (!same_shape(given, expected)) return call.fail("the source does not have the shape of what is indexed");
  return Placement{to, whole_selection(call, given, wrap_axis(axis, given.rank), 1)};
}

Status index_add(KernelCall& call) {
  SG_ASSIGN(Placement p, placement(call, call.tensor("source")));
  add_selection(call, p.to, p.from, call.scalar("alpha"));
  return ok_status();
}

Status index_copy(KernelCall& call) {
  SG_ASSIGN(Placement p, placement(call, call.tensor("source")));
  copy_selection(call, p.to, p.from);
  return ok_status();
}

Status index_fill(KernelCall& call) {
  Tensor value = call.scratch().tensor(call.result().dtype, {});
  fill(call, value, call.scalar("value"));
  Tensor shape = with_axis(call.result());
  shape.shape[static_cast<size_t>(wrap_axis(call.integer("dim"), shape.rank))] = call.tensor("index").elements();
  SG_ASSIGN(Placement p, placement(call, broadcast_to(value, shape.sizes()), true));
  copy_selection(call, p.to, p.from);
  return ok_status();
}

Status take(KernelCall& call) {
  Tensor flat = contiguous(call, call.tensor("self"));
  flat.shape[0] = flat.elements();
  flat.stride[0] = 1;
  flat.rank = 1;
  SG_ASSIGN(Selection from, axis_selection(call, flat, 0, index_vector(call, "index"), true));
  const Tensor& out = call.result();
  copy_selection_once(call, whole_selection(call, out, 0, out.rank), from);
  return ok_status();
}

Status embedding(KernelCall& call) {
  const Tensor& weight = call.tensor("weight");
  SG_ASSIGN(Selection from, axis_selection(call, weight, 0, index_vector(call, "indices"), false));
  const Tensor& out = call.result();
  copy_selection_once(call, whole_selection(call, out, 0, out.rank - 1), from);
  return ok_status();
}

// Scales the rows that are looked up down to max_norm.
Status embedding_renorm(KernelCall& call) {
  const Tensor &table = call.tensor("self"), indices = index_vector(call, "indices");
  const auto* rows = indices.as<int64_t>();
  const int64_t n = indices.elements(), width = table.dim(1);
  IndexCheck check;
  for (int64_t i = 0; i < n; ++i) check.hold(rows[i], table.dim(0), i);
  SG_TRY(check.status(call, rows, table.dim(0)));
  std::vector<int64_t> used(rows, rows + n);
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  const work::Renorm renorm{call.number("max_norm"), call.number("norm_type")};
  visit_floating(table.dtype, [&]<class T>() {
    for (int64_t row : used) {
      T* x = table.as<T>() + row * table.step(0);
      double sum = 0;
      for (int64_t i = 0; i < width; ++i)
        sum = renorm.add(sum, static_cast<double>(static_cast<Compute<T>>(x[i * table.step(1)])));
      const double factor = renorm.factor(sum);
      if (factor == 1) continue;
      for (int64_t i = 0; i < width; ++i) {
        T& at = x[i * table.step(1)];
        double shorter = static_cast<double>(static_cast<Compute<T>>(at)) * factor;
        at = static_cast<T>(static_cast<Compute<T>>(shorter));
      }
    }
  });
  return ok_status();
}

// Every row of the table gets the sum of the gradients of its uses, in order; the padding row gets none.
Status embedding_backward(KernelCall& call) {
  const Tensor& out = call.result();
  Tensor grad = alike(call, call.tensor("grad_output"), out), indices = index_vector(call, "indices");
  fill(call, out, Scalar::integer(0));
  SG_ASSIGN(Selection to, axis_selection(call, out, 0, indices, false));
  Selection from = whole_selection(call, grad, 0, grad.rank - 1);
  auto *places = call.scratch().take<int64_t>(to.picked.count + 1),
       *sources = call.scratch().take<int64_t>(to.picked.count + 1);
  int64_t n = 0, padding = call.integer("padding_idx");
  for (int64_t i = 0; i < to.picked.count; ++i) {
    if (indices.as<int64_t>()[i] == padding) continue;
    places[n] = to.picked.at[i];
    sources[n++] = from.picked.at[i];
  }
  to.picked = {places, n};
  from.picked = {sources, n};
  add_selection(call, to, from, Scalar::integer(1));
  if (!call.flag("scale_grad_by_freq")) return ok_status();
  Groups groups = group_by_key(call, places, n);
  visit_floating(out.dtype, [&]<class T>() {
    for (int64_t g = 0; g < groups.count; ++g) {
      auto uses = static_cast<Compute<T>>(groups.begin[g + 1] - groups.begin[g]);
      T* row = out.as<T>() + places[groups.order[groups.begin[g]]];
      for (int64_t i = 0; i < to.inner.count; ++i)
        row[to.inner.at[i]] = static_cast<T>(static_cast<Compute<T>>(row[to.inner.at[i]]) / uses);
    }
  });
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.index.Tensor", index},
    {"aten._unsafe_index.Tensor", index},
    {"aten.index_put.default", index_put},
    {"aten._unsafe_index_put.default", index_put},
    {"aten.index_put_.default", index_put},
    {"aten.index_select.default", index_select},
    {"aten.index_add.default", index_add},
    {"aten.index_add_.default", index_add},
    {"aten.index_copy.default", index_copy},
    {"aten.index_copy_.default", index_copy},
    {"aten.index_fill.int_Scalar", index_fill},
    {"aten.index_fill_.int_Scalar", index_fill},
    {"aten.take.default", take},
    {"aten.embedding.default", embedding},
    {"aten.embedding_renorm_.default", embedding_renorm},
    {"aten.embedding_dense_backward.default", embedding_backward},
};

}  // namespace

std::span<const KernelRow> index_kernels() { return kRows; }

}  // namespace sg::cpu
