// Sizes: the strides PyTorch chooses for results, and those of views.
#include <algorithm>

#include "libgraph/infer/infer_sizes.h"

namespace sg {

Exprs Sizes::contiguous(const Exprs& shape) {
  Exprs stride(shape.size());
  Expr step = number(1);
  for (size_t i = shape.size(); i-- > 0;) {
    stride[i] = step;
    step = exprs_.mul(step, at_least_one(shape[i]));
  }
  return stride;
}

bool Sizes::is_contiguous(const Type& t) {
  Expr step = number(1);
  for (size_t i = t.shape.size(); i-- > 0;) {
    if (is(t.shape[i], 0)) return true;
    if (is(t.shape[i], 1)) continue;
    if (!same(t.stride[i], step)) return std::any_of(t.shape.begin(), t.shape.end(), [&](Expr s) { return is(s, 0); });
    step = exprs_.mul(step, t.shape[i]);
  }
  return true;
}

// Dimensions by ascending stride; equal or incomparable ones keep their order from the right.
std::vector<size_t> Sizes::by_stride(const Type& t) {
  std::vector<size_t> order;
  for (size_t i = t.shape.size(); i-- > 0;) {
    size_t at = order.size();
    while (at > 0 && compare(t.stride[order[at - 1]], t.stride[i]) > 0) --at;
    order.insert(order.begin() + static_cast<ptrdiff_t>(at), i);
  }
  return order;
}

bool Sizes::is_dense(const Type& t) {
  if (is_contiguous(t)) return true;
  Type counted = t;  // without dimensions of size 1, whose strides do not matter
  counted.shape.clear(), counted.stride.clear();
  for (size_t i = 0; i < t.shape.size(); ++i) {
    if (is(t.shape[i], 1)) continue;
    counted.shape.push_back(t.shape[i]), counted.stride.push_back(t.stride[i]);
  }
  Expr step = number(1);
  for (size_t dim : by_stride(counted)) {
    if (!same(counted.stride[dim], step)) return false;
    step = exprs_.mul(step, counted.shape[dim]);
  }
  return true;
}

Exprs Sizes::preserved(const Type& t) { return is_dense(t) ? t.stride : elementwise(t.shape, {&t}); }

Exprs Sizes::in_order_of(const Type& like, const Exprs& shape, bool empty_as_one) {
  Exprs stride(shape.size(), number(1));
  Expr step = number(1);
  for (size_t dim : by_stride(like)) {
    stride[dim] = step;
    step = exprs_.mul(step, empty_as_one ? at_least_one(shape[dim]) : shape[dim]);
  }
  return stride;
}

// Whether dimension a is outside b: 1 yes, -1 no, 0 the operands do not determine it.
int Sizes::order(size_t a, size_t b, const Exprs& shape, const std::vector<Exprs>& strides) {
  for (const Exprs& stride : strides) {
    if (is(stride[a], 0) || is(stride[b], 0)) continue;
    int c = compare(stride[a], stride[b]);
    if (c != 0) return c;
    if (same(stride[a], stride[b]) && compare(shape[a], shape[b]) > 0) return 1;
  }
  return 0;
}

bool Sizes::is_dense_channels_last(const Type& t) {
  const size_t rank = t.shape.size();
  if (rank != 4 && rank != 5) return false;
  std::vector<size_t> order{1};  // innermost first
  for (size_t axis = rank - 1; axis >= 2; --axis) order.push_back(axis);
  order.push_back(0);
  Expr step = number(1);
  for (size_t axis : order) {
    if (is(t.shape[axis], 1)) continue;
    if (!same(t.stride[axis], step)) return false;
    step = exprs_.mul(step, t.shape[axis]);
  }
  return true;
}

Exprs Sizes::channels_last(const Exprs& shape) {
  Exprs moved = shape;  // batch, spatial dimensions, channels
  std::rotate(moved.begin() + 1, moved.begin() + 2, moved.end());
  Exprs stride = contiguous(moved);
  std::rotate(stride.begin() + 1, stride.end() - 1, stride.end());
  return stride;
}

Exprs Sizes::elementwise(const Exprs& shape, const std::vector<const Type*>& operands) {
  auto same_shape = [&](const Type* t) { return same(t->shape, shape); };
  if (!operands.empty() && std::all_of(operands.begin(), operands.end(), same_shape)) {
    if (std::all_of(operands.begin(), operands.end(), [&](const Type* t) { return is_contiguous(*t); }))
      return contiguous(shape);
    if (std::all_of(operands.begin(), operands.end(), [&](const Type* t) { return is_dense_channels_last(*t); }))
      return channels_last(shape);
    const Type& first = *operands[0];
    auto known = [&](Expr e) { return exprs_.is_constant(e); };
    if (std::all_of(shape.begin(), shape.end(), known) && is_dense(first) &&
        std::all_of(operands.begin(), operands.end(), [&](const Type* t) { return same(t->stride, first.stride); }))
      return first.stride;
  }
  std::vector<Exprs> strides;
  for (const Type* t : operands)
    if (auto expanded = expand_strides(*t, shape)) strides.push_back(std::move(*expanded));
  // Insertion sort from the innermost dimension. The comparison is not transitive, so the algorithm is part of the
  // rule.
  std::vector<size_t> perm;
  for (size_t i = shape.size(); i-- > 0;) perm.push_back(i);
  for (size_t i = 1; i < perm.size(); ++i) {
    size_t moving = i;
    for (size_t j = i; j-- > 0;) {
      int c = order(perm[j], perm[moving], shape, strides);
      if (c < 0) break;
      if (c == 0) continue;
      std::swap(perm[j], perm[moving]);
      moving = j;
    }
  }
  Exprs result(shape.size());
  Expr step = number(1);
  for (size_t dim : perm) {
    result[dim] = step;
    step = exprs_.mul(step, at_least_one(shape[dim]));
  }
  return result;
}

std::optional<Exprs> Sizes::expand_strides(const Type& t, const Exprs& shape) {
  if (t.shape.size() > shape.size()) return std::nullopt;
  size_t skip = shape.size() - t.shape.size();
  Exprs stride(shape.size(), number(0));
  for (size_t i = 0; i < t.shape.size(); ++i) {
    if (is(t.shape[i], 1) && !is(shape[skip + i], 1)) continue;
    stride[skip + i] = t.stride[i];
  }
  return stride;
}

std::optional<Exprs> Sizes::view_strides(const Type& t, const Exprs& shape) {
  auto always = view_strides_where(t, shape, [&](Expr a, Expr b) { return same(a, b); });
  if (always) return always;
  auto implied = view_strides_where(t, shape, [&](Expr a, Expr b) { return same(a, b) || implied_equal(a, b); });
  if (implied) return implied;
  // What held at capture, by guards that were not recorded.
  return view_strides_where(t, shape, [&](Expr a, Expr b) {
    auto x = at_capture(a), y = at_capture(b);
    return same(a, b) || (x && x == y);
  });
}

// From the last axis on, axes of `t` that are adjacent in memory form one run, whose elements are distributed over axes
// of the view.
template <typename IsSame>
std::optional<Exprs> Sizes::view_strides_where(const Type& t, const Exprs& shape, IsSame&& is_same) {
  if (std::ranges::any_of(t.shape, [&](Expr s) { return is(s, 0); }))
    return t.shape == shape ? t.stride : contiguous(shape);
  if (t.shape.empty()) return Exprs(shape.size(), number(1));
  if (same(t.shape, shape) && !is_contiguous(t)) return t.stride;
  const bool is_symbolic = std::ranges::any_of(shape, [&](Expr s) { return !constant(s); });
  if (is_symbolic && is_contiguous(t)) return contiguous(shape);
  Exprs stride(shape.size(), number(1));
  size_t view = shape.size();  // view dimensions from here on have their strides
  Expr base = t.stride.back(), seen = number(1), placed = number(1);
  for (size_t dim = t.shape.size(); dim-- > 0;) {
    seen = exprs_.mul(seen, t.shape[dim]);
    bool ends = dim == 0 || (!is(t.shape[dim - 1], 1) && !is_same(t.stride[dim - 1], exprs_.mul(seen, base)));
    if (!ends) continue;
    while (view > 0 && (is(shape[view - 1], 1) || !is_same(placed, seen))) {
      auto x = constant(placed), y = constant(seen);
      if (x && y && *x > *y) return std::nullopt;
      --view;
      stride[view] = exprs_.mul(placed, base);
      placed = exprs_.mul(placed, shape[view]);
    }
    if (!is_same(placed, seen)) return std::nullopt;
    if (dim > 0) base = t.stride[dim - 1];
    seen = placed = number(1);
  }
  if (view != 0) return std::nullopt;
  // Leading dimensions that are unchanged keep their strides, including those of size 1.
  for (size_t i = 0; !is_contiguous(t) && i < std::min(shape.size(), t.shape.size()) && t.shape[i] == shape[i]; ++i)
    stride[i] = t.stride[i];
  return stride;
}

}  // namespace sg
