// Axis rules of products, reductions, norms and embeddings: the chunked axis is kept, or contracted to a sum over
// chunks.
#include "libpasses/axis/axis_rules.h"

#include <tuple>

namespace sg::axis {
namespace {

AxisState partial_state() {
  AxisState out;
  out.kind = AxisKind::partial;
  return out;
}

Along at_axis(Along a, size_t axis) {
  a.axis = static_cast<uint32_t>(axis);
  return a;
}

// x @ y with `batch` leading batch axes: axis `rows` of x and `columns` of y go to the result; `x_inner` and `y_inner`
// are contracted.
Status product(AxisCall& c, ValueId x, ValueId y, size_t batch) {
  const size_t rows = batch, x_inner = batch + 1, y_inner = batch, columns = batch + 1;
  for (ValueId v : {x, y})
    if (c.state(v).local) return c.fail("positions of each chunk's own enter a product");
  const AxisState* s = c.along(x);
  const bool of_x = s != nullptr;
  if (!of_x) s = c.along(y);
  if (s == nullptr) return c.fail("no factor is chunked along an axis");
  const Along a = s->along;
  const ValueId other = of_x ? y : x;
  if (a.axis < batch) {
    SG_TRY(c.want(other, a));
    return c.give_along(a);
  }
  if (a.axis == (of_x ? x_inner : y_inner)) {
    SG_TRY(c.want(other, at_axis(a, of_x ? y_inner : x_inner)));
    return c.give(partial_state());
  }
  SG_TRY(c.want_whole(other, "the other factor"));
  return c.give_along(at_axis(a, of_x ? rows : columns));
}

// A value that broadcasts to a product of that rank, chunked along `a`: chunked with it if it has that axis, else
// whole.
Status want_broadcast(AxisCall& c, ValueId v, Along a, std::string_view what, size_t rank = 2) {
  const size_t shift = rank - c.rank(v);
  if (a.axis < shift) return c.want_whole(v, what);
  a.axis -= static_cast<uint32_t>(shift);
  if (c.exprs.constant_value(c.type(v).shape[a.axis]) == 1) return c.want_whole(v, what);
  return c.want(v, a);
}

// Whether `scale` has one element, or one for each entry of that axis of the matrix.
bool is_one_each(const AxisCall& c, ValueId scale, ValueId matrix, size_t axis) {
  const auto& shape = c.type(scale).shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool is_axis = shape.size() == 2 && i == axis && shape[i] == c.type(matrix).shape[axis];
    if (!is_axis && c.exprs.constant_value(shape[i]) != 1) return false;
  }
  return true;
}

// The axes that a reduction reduces; all if it names none.
std::optional<std::vector<bool>> reduced_axes(const AxisCall& c, size_t rank) {
  std::vector<bool> out(rank, false);
  const Arg* arg = c.find("dim");
  if (arg == nullptr) return std::vector<bool>(rank, true);
  const auto dims = c.integers("dim");
  if (!dims) return std::nullopt;
  if (dims->empty()) return std::vector<bool>(rank, true);
  for (int64_t d : *dims) {
    const auto dim = c.wrap(d, rank);
    if (!dim) return std::nullopt;
    out[*dim] = true;
  }
  return out;
}

Result<AxisState> reduced_operand(const AxisCall& c) {
  const AxisState* s = c.along(c.tensor("self"));
  if (s == nullptr) return c.fail("its operand is not chunked along an axis");
  if (s->local) return c.fail("it reduces positions of each chunk's own");
  return *s;
}

Status keep_reduced(AxisCall& c, const AxisState& s, const std::vector<bool>& gone) {
  size_t axis = s.along.axis;
  const bool keeps = c.boolean("keepdim", false);
  for (size_t i = 0; !keeps && i < s.along.axis; ++i) axis -= gone[i];
  return c.give_all(along_state(at_axis(s.along, axis)));
}

}  // namespace

Status mm(AxisCall& c) { return product(c, c.tensor("self"), c.tensor("mat2"), 0); }
Status bmm(AxisCall& c) { return product(c, c.tensor("self"), c.tensor("mat2"), 1); }

// The bias must be added once; a sum over chunks would add it in each chunk.
Status addmm(AxisCall& c) {
  SG_TRY(product(c, c.tensor("mat1"), c.tensor("mat2"), 0));
  if (c.given[0].kind == AxisKind::partial)
    return c.fail("the contracted axis is chunked, and the bias would be added in every chunk");
  return want_broadcast(c, c.tensor("self"), c.given[0].along, "the bias");
}

Status baddbmm(AxisCall& c) {
  SG_TRY(product(c, c.tensor("batch1"), c.tensor("batch2"), 1));
  if (c.given[0].kind == AxisKind::partial)
    return c.fail("the contracted axis is chunked, and the bias would be added in every chunk");
  return want_broadcast(c, c.tensor("self"), c.given[0].along, "the bias", 3);
}

// A scale for the whole matrix fits any chunk; a scale per row or column is chunked with them.
Status scaled_mm(AxisCall& c) {
  const ValueId x = c.tensor("self"), y = c.tensor("mat2"), bias = c.tensor("bias");
  SG_TRY(product(c, x, y, 0));
  SG_TRY(c.want_whole(c.tensor("scale_result"), "the scale of the result"));
  const bool is_partial = c.given[0].kind == AxisKind::partial;
  if (is_partial && !bias.is_none())
    return c.fail("the contracted axis is chunked, and the bias would be added in every chunk");
  const Along along = c.given[0].along;
  for (const auto& [scale, operand, axis] : {std::tuple{c.tensor("scale_a"), x, 0U}, {c.tensor("scale_b"), y, 1U}}) {
    if (!is_one_each(c, scale, operand, axis)) return c.fail("its scales are of blocks");
    SG_TRY(is_partial ? c.want_whole(scale, "the scale") : want_broadcast(c, scale, along, "the scale"));
  }
  return bias.is_none() ? ok_status() : want_broadcast(c, bias, along, "the bias");
}

Status linear(AxisCall& c) {
  const AxisState* s = c.along(c.tensor("input"));
  if (s == nullptr || s->local) return c.fail("its input is not chunked along an axis");
  if (s->along.axis + 1 == c.rank(c.tensor("input"))) return c.fail("the contracted axis is chunked");
  SG_TRY(c.want_whole(c.tensor("weight"), "the weight"));
  SG_TRY(c.want_whole(c.tensor("bias"), "the bias"));
  return c.give_along(s->along);
}

// Of each row of x1 from each row of x2.
Status distances(AxisCall& c) {
  const ValueId x1 = c.tensor("x1"), x2 = c.tensor("x2");
  SG_ASSIGN(const ValueId first, c.first_along());
  const AxisState& s = c.state(first);
  const size_t rank = c.rank(x1);
  if (s.local || rank != c.rank(x2)) return c.fail("its operands are not of one rank");
  if (s.along.axis + 1 == rank) return c.fail("it measures along the chunked axis");
  const ValueId other = first == x1 ? x2 : x1;
  if (s.along.axis + 2 < rank) {
    SG_TRY(c.want(other, s.along));
    return c.give_along(s.along);
  }
  SG_TRY(c.want_whole(other, "the other rows"));
  return c.give_along(at_axis(s.along, first == x1 ? rank - 2 : rank - 1));
}

// The gradient of x1's rows: a sum over those of x2.
Status distances_backward(AxisCall& c) {
  const ValueId x1 = c.tensor("x1"), x2 = c.tensor("x2");
  SG_ASSIGN(const ValueId first, c.first_along());
  const AxisState& s = c.state(first);
  const Along a = s.along;
  const size_t rank = c.rank(x1);
  if (s.local || rank != c.rank(x2)) return c.fail("its operands are not of one rank");
  const bool is_point = first == x1 || first == x2;
  if (is_point && a.axis + 1 == rank) return c.fail("it measures along the chunked axis");
  const bool by_x2 = a.axis + 2 >= rank && (is_point ? first == x2 : a.axis + 1 == rank);
  for (std::string_view name : {"grad_output", "cdist"})
    SG_TRY(c.want(c.tensor(name), by_x2 ? at_axis(a, rank - 1) : a));
  if (a.axis + 2 < rank) SG_TRY(c.want(x2, a));
  else SG_TRY(by_x2 ? c.want(x2, at_axis(a, rank - 2)) : c.want_whole(x2, "the other rows"));
  if (!by_x2) SG_TRY(c.want(x1, a));
  else SG_TRY(c.want_whole(x1, "the rows"));
  return by_x2 ? c.give(partial_state()) : c.give_along(a);
}

Status sum(AxisCall& c) {
  SG_ASSIGN(const AxisState s, reduced_operand(c));
  const auto gone = reduced_axes(c, c.rank(c.tensor("self")));
  if (!gone) return c.fail("its axes are not known");
  if (!(*gone)[s.along.axis]) return keep_reduced(c, s, *gone);
  const ValueId self = c.tensor("self");
  const auto classes = s.marks.is_none() || c.rank(self) != 2 || c.rank(c.result(0)) != 1
                           ? std::nullopt
                           : c.exprs.constant_value(c.type(self).shape[1]);
  return c.give(classes ? counts_state(c, root_table({s.marks}, *classes)) : partial_state());
}

Status reduce(AxisCall& c) {
  SG_ASSIGN(const AxisState s, reduced_operand(c));
  const auto gone = reduced_axes(c, c.rank(c.tensor("self")));
  if (!gone) return c.fail("its axes are not known");
  const bool mean = c.op.name == "aten.mean.default" || c.op.name == "aten.mean.dim";
  if ((*gone)[s.along.axis]) {
    if (!mean) return c.fail("it reduces along the chunked axis, and is not a sum");
    SG_TRY(share_rows(c, s.along));
    return c.give(partial_state());
  }
  return keep_reduced(c, s, *gone);
}

Status along_dim(AxisCall& c) {
  SG_ASSIGN(const ValueId first, c.first_along());
  const AxisState& s = c.state(first);
  if (s.local) return c.fail("it orders or sums positions of each chunk's own");
  const auto is = [&](std::string_view part) { return c.op.name.find(part) != c.op.name.npos; };
  const int64_t fallback = is("topk") || is("sort") || is("glu") ? -1 : 0;
  const auto dim = c.dim("dim", c.rank(first), fallback);
  if (!dim) return c.fail("its axis is not known");
  if (*dim == s.along.axis) return c.fail("it works along the chunked axis");
  const Along a = s.along;
  for (ValueId v : c.tensors())
    if (c.rank(v) == c.rank(first)) SG_TRY(c.want(v, a));
    else return c.fail("its operands are not of one shape");
  return c.give_all(along_state(a));
}

Status other_dims(AxisCall& c) {
  const ValueId self = c.tensor("self");
  SG_ASSIGN(const AxisState s, reduced_operand(c));
  const auto dims = c.integers(c.op.param_index("dims") >= 0 ? "dims" : "dim");
  if (!dims || dims->empty()) return c.fail("its axes are not known");
  for (int64_t d : *dims)
    if (c.wrap(d, c.rank(self)) == s.along.axis) return c.fail("it works along the chunked axis");
  return c.give_all(along_state(s.along));
}

Status matrices(AxisCall& c) {
  SG_ASSIGN(const ValueId first, c.first_along());
  const Along a = c.state(first).along;
  const size_t rank = c.rank(c.tensors()[0]);
  if (c.state(first).local || a.axis + 2 >= rank) return c.fail("the chunked axis is one of its matrices'");
  for (const Param& param : c.op.params) {
    const ValueId v = c.tensor(param.name);
    if (v.is_none()) continue;
    const bool is_line = param.name == "pivots" || param.name == "tau";
    if (c.rank(v) + is_line != rank) return c.fail("its operands are not of one rank");
    SG_TRY(c.want(v, a));
  }
  for (uint32_t i = 0; i < c.node.result_count; ++i)
    if (a.axis >= c.rank(c.result(i)) || !c.is_as_long(c.result(i), a))
      return c.fail("it has a result without the axis");
  return c.give_all(along_state(a));
}

Status layer_norm(AxisCall& c) {
  const AxisState* s = c.along(c.tensor("input"));
  const auto normalized = c.find("normalized_shape");
  if (s == nullptr || normalized == nullptr || !normalized->is(ArgKind::list))
    return c.fail("its input is not chunked along an axis");
  const Along a = s->along;
  if (a.axis + normalized->items().size() >= c.rank(c.tensor("input")))
    return c.fail("it normalizes over the chunked axis");
  SG_TRY(c.want_whole(c.tensor("weight"), "the weight"));
  SG_TRY(c.want_whole(c.tensor("bias"), "the bias"));
  return c.give_all(along_state(a));
}

Status layer_norm_backward(AxisCall& c) {
  SG_ASSIGN(const ValueId first, c.first_along());
  const Along a = c.state(first).along;
  const auto normalized = c.find("normalized_shape");
  const ValueId input = c.tensor("input");
  if (normalized == nullptr || !normalized->is(ArgKind::list)) return c.fail("the normalized shape is not known");
  if (a.axis + normalized->items().size() >= c.rank(input)) return c.fail("it normalizes over the chunked axis");
  for (std::string_view name : {"grad_out", "input", "mean", "rstd"})
    if (ValueId v = c.tensor(name); !v.is_none()) SG_TRY(c.want(v, a));
  SG_TRY(c.want_whole(c.tensor("weight"), "the weight"));
  SG_TRY(c.want_whole(c.tensor("bias"), "the bias"));
  SG_TRY(c.give_along(a));
  return c.give_all(partial_state());
}

Status embedding(AxisCall& c) {
  const AxisState* s = c.along(c.tensor("indices"));
  if (s == nullptr || s->local) return c.fail("its indices are not chunked along an axis");
  SG_TRY(c.want_whole(c.tensor("weight"), "the weight"));
  return c.give_along(s->along);
}

Status embedding_backward(AxisCall& c) {
  SG_ASSIGN(const ValueId first, c.first_along());
  const AxisState s = c.state(first);
  const ValueId indices = c.tensor("indices");
  if (s.local || s.along.axis >= c.rank(indices)) return c.fail("its indices are not chunked along an axis");
  if (c.boolean("scale_grad_by_freq", false)) return c.fail("it scales by how often a row occurs in the whole");
  for (std::string_view name : {"grad_output", "indices"}) SG_TRY(c.want(c.tensor(name), s.along));
  return c.give(partial_state());
}

}  // namespace sg::axis
