// Rearranging elements: repeat, roll, flip, pad, triangles.
#include <algorithm>

#include "librun/cpu/fill.h"
#include "librun/cpu/inner_call.h"
#include "librun/cpu/kernels.h"
#include "librun/element.h"
#include "librun/work/run.h"

namespace sg::cpu {
namespace {

// Rows of the last two axes; elements outside the triangle become 0.
template <bool lower>
Status triangle(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  const Tensor& out = call.result();
  int64_t diagonal = call.integer("diagonal"), rows = out.dim(-2), columns = out.dim(-1);
  if (out.elements() == 0) return ok_status();
  Tensor from_lines = drop_axis(self, self.rank - 1), to_lines = drop_axis(out, out.rank - 1);
  RowWalker walk({&to_lines, &from_lines});
  int64_t to_step = out.step(-1), from_step = self.step(-1);
  visit_dtype(out.dtype, [&]<class T>() {
    auto line = [&](T* to, const T* from, int64_t row) {
      // Columns up to row + diagonal are the lower triangle. The sum cannot overflow: the diagonal is clamped to the
      // matrix.
      int64_t cut = std::clamp<int64_t>(std::clamp(diagonal, -rows - columns, rows + columns) + row + (lower ? 1 : 0),
                                        0, columns);
      int64_t keep_from = lower ? 0 : cut, keep_to = lower ? cut : columns;
      for (int64_t j = 0; j < keep_from; ++j) to[j * to_step] = T{};
      if (to != from)
        for (int64_t j = keep_from; j < keep_to; ++j) to[j * to_step] = from[j * from_step];
      for (int64_t j = keep_to; j < columns; ++j) to[j * to_step] = T{};
    };
    int64_t length = walk.length();
    call.team().parallel_for(
        walk.rows() * length, std::max<int64_t>(1, kPieceElements / columns), [&](int64_t begin, int64_t end) {
          for (int64_t n = begin; n < end; ++n) {
            walk.for_rows(n / length, n / length + 1, [&](const int64_t* offset, int64_t) {
              int64_t i = n % length;
              line(out.as<T>() + offset[0] + i * walk.step(0), self.as<T>() + offset[1] + i * walk.step(1), n % rows);
            });
          }
        });
  });
  return ok_status();
}

// The result viewed as [repeat, size] for every axis: one copy of self, broadcast over the repeats.
Status repeat(KernelCall& call) {
  Tensor out = call.result(), self = broadcast_to(call.tensor("self"), call.tensor("self").sizes());
  int added = out.rank - self.rank;
  if (2 * out.rank > kMaxRank) {  // the view would have too many axes
    return call.fail("a tensor of " + std::to_string(out.rank) + " axes cannot be repeated");
  }
  Tensor to = out, from = self;
  to.rank = from.rank = 0;
  auto push = [&](int64_t size, int64_t to_step, int64_t from_step) {
    auto at = static_cast<size_t>(to.rank++);
    from.rank = to.rank;
    to.shape[at] = from.shape[at] = size;
    to.stride[at] = to_step;
    from.stride[at] = from_step;
  };
  for (int axis = 0; axis < out.rank; ++axis) {
    int64_t size = axis < added ? 1 : self.dim(axis - added), step = axis < added ? 0 : self.step(axis - added);
    push(size == 0 ? 0 : out.dim(axis) / size, out.step(axis) * size, 0);
    push(size, out.step(axis), step);
  }
  copy(call, to, from);
  return ok_status();
}

Status flip(KernelCall& call) {
  Tensor self = call.tensor("self");
  if (self.elements() == 0) return ok_status();
  for (int axis : call.axes("dims", self.rank)) {
    auto a = static_cast<size_t>(axis);
    self.data += (self.dim(axis) - 1) * self.step(axis) * dtype_bytes(self.dtype);
    self.stride[a] = -self.stride[a];
  }
  copy(call, call.result(), self);
  return ok_status();
}

// Copies both parts of every rolled axis: 2^n copies for n axes.
void roll_parts(KernelCall& call, const Tensor& out, const Tensor& self, std::span<const int64_t> shifts,
                std::span<const int> axes) {
  if (axes.empty()) return copy(call, out, self);
  int axis = axes[0];
  int64_t size = self.dim(axis), shift = size == 0 ? 0 : ((shifts[0] % size) + size) % size;
  roll_parts(call, narrow_axis(out, axis, shift, size - shift), narrow_axis(self, axis, 0, size - shift),
             shifts.subspan(1), axes.subspan(1));
  if (shift > 0)
    roll_parts(call, narrow_axis(out, axis, 0, shift), narrow_axis(self, axis, size - shift, shift), shifts.subspan(1),
               axes.subspan(1));
}

Status roll(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  std::vector<int64_t> shifts(call.integers("shifts").begin(), call.integers("shifts").end());
  if (call.param("shifts").kind == ParamValue::Kind::scalar) shifts = {call.integer("shifts")};
  std::vector<int> axes = call.axes("dims", self.rank);
  if (axes.empty() && shifts.size() == 1) {  // all elements as one row
    Tensor flat = contiguous(call, self), to = workspace(call, self.dtype, std::array{self.elements()});
    flat = make_tensor(flat.data, flat.dtype, to.sizes());
    roll_parts(call, to, flat, shifts, std::array{0});
    copy(call, call.result(), make_tensor(to.data, to.dtype, call.result().sizes()));
    return ok_status();
  }
  if (axes.size() != shifts.size()) return call.fail("as many shifts as axes are needed");
  // An axis named twice is rolled twice: its shifts add up.
  std::vector<int> once;
  std::vector<int64_t> total;
  for (size_t i = 0; i < axes.size(); ++i) {
    auto it = std::find(once.begin(), once.end(), axes[i]);
    int64_t size = std::max<int64_t>(self.dim(axes[i]), 1);
    if (it == once.end()) once.push_back(axes[i]), total.push_back(shifts[i] % size);
    else total[static_cast<size_t>(it - once.begin())] += shifts[i] % size;
  }
  roll_parts(call, call.result(), self, total, once);
  return ok_status();
}

// out = each next element along `axis` minus the current one, computed by the op for two tensors.
Status subtract_neighbours(KernelCall& call, const Tensor& t, const Tensor& out, int axis) {
  const Tensor high = narrow_axis(t, axis, 1, out.dim(axis)), low = narrow_axis(t, axis, 0, out.dim(axis));
  if (t.dtype == DType::boolean)
    return call_op(call, "aten.ne.Tensor", {{"self", param_of(high)}, {"other", param_of(low)}}, {out});
  const ParamValue one = param_of(Scalar::integer(1));
  return call_op(call, "aten.sub.Tensor", {{"self", param_of(high)}, {"other", param_of(low)}, {"alpha", one}}, {out});
}

Status diff(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  int axis = wrap_axis(call.integer("dim"), self.rank);
  if (call.integer("n") == 0) return copy(call, call.result(), self), ok_status();  // PyTorch joins nothing then
  std::vector<Tensor> joined;
  if (call.has("prepend")) joined.push_back(call.tensor("prepend"));
  joined.push_back(self);
  if (call.has("append")) joined.push_back(call.tensor("append"));
  Tensor shape = self;
  shape.shape[static_cast<size_t>(axis)] = 0;
  for (const Tensor& t : joined) shape.shape[static_cast<size_t>(axis)] += t.dim(axis);
  Tensor current = workspace(call, self.dtype, shape.sizes());
  int64_t start = 0;
  for (const Tensor& t : joined) copy(call, narrow_axis(current, axis, start, t.dim(axis)), t), start += t.dim(axis);
  for (int64_t n = call.integer("n"); n > 0 && current.dim(axis) > 0; --n) {
    shape.shape[static_cast<size_t>(axis)] = current.dim(axis) - 1;
    Tensor next = workspace(call, self.dtype, shape.sizes());
    SG_TRY(subtract_neighbours(call, current, next, axis));
    current = next;
  }
  copy(call, call.result(), current);
  return ok_status();
}

}  // namespace

// Negative padding crops.
Status constant_pad(KernelCall& call) {
  const Tensor& out = call.result();
  Tensor self = call.tensor("self"), inner = out;
  std::span<const int64_t> pad = call.integers("pad");
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    int axis = self.rank - 1 - static_cast<int>(i);
    int64_t before = pad[2 * i], after = pad[2 * i + 1], cut_before = std::max<int64_t>(-before, 0);
    int64_t length = self.dim(axis) - cut_before - std::max<int64_t>(-after, 0);
    if (length < 0) length = 0;
    self = narrow_axis(self, axis, cut_before, length);
    inner = narrow_axis(inner, axis, std::max<int64_t>(before, 0), length);
  }
  if (inner.elements() != out.elements())
    fill(call, out, call.has("value") ? call.scalar("value") : Scalar::integer(0));
  copy(call, inner, self);
  return ok_status();
}

namespace {

// repeats [n] -> each position, repeated as often as its entry says.
Status repeat_interleave(KernelCall& call) {
  Tensor repeats = contiguous_as(call, call.tensor("repeats"), DType::i64);
  int64_t total = 0, n = repeats.elements();
  for (int64_t i = 0; i < n; ++i) {
    int64_t times = repeats.as<int64_t>()[i];
    if (times < 0)
      return call.fail("position " + std::to_string(i) + " cannot be repeated " + std::to_string(times) + " times");
    if (__builtin_add_overflow(total, times, &total)) return call.fail("the repeats add up to more than memory holds");
  }
  if (call.result().is_none()) SG_TRY(call.allocate_result(0, std::array{total}));
  const Tensor& out = call.result();
  if (out.elements() != total)
    return call.fail("the repeats add up to " + std::to_string(total) + ", but the graph says " +
                     std::to_string(out.elements()));
  Tensor numbers = call.scratch().tensor(DType::i64, out.sizes());
  auto* to = numbers.as<int64_t>();
  for (int64_t i = 0; i < n; ++i) to = std::fill_n(to, repeats.as<int64_t>()[i], i);
  copy(call, out, numbers);
  return ok_status();
}

// Repeats every element `repeats` times along an axis, or in one flat row.
Status repeat_interleave_int(KernelCall& call) {
  Tensor self = call.tensor("self"), out = call.result();
  int64_t repeats = call.integer("repeats");
  if (repeats < 0) return call.fail("nothing can be repeated " + std::to_string(repeats) + " times");
  if (!call.has("dim"))
    self = contiguous(call, self), self = make_tensor(self.data, self.dtype, std::array{self.elements()});
  if (self.rank == 0) self.rank = 1, self.shape[0] = self.stride[0] = 1;
  int axis = call.has("dim") ? wrap_axis(call.integer("dim"), self.rank) : 0;
  if (out.elements() == 0) return ok_status();
  for (int64_t i = 0; i < repeats; ++i) {
    Tensor to = narrow_axis(out, axis, i, self.dim(axis));
    to.stride[static_cast<size_t>(axis)] *= repeats;
    copy(call, to, self);
  }
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.tril.default", triangle<true>},
    {"aten.triu.default", triangle<false>},
    {"aten.tril_.default", triangle<true>},
    {"aten.triu_.default", triangle<false>},
    {"aten.repeat.default", repeat},
    {"aten.flip.default", flip},
    {"aten.roll.default", roll},
    {"aten.constant_pad_nd.default", constant_pad},
    {"aten.diff.default", diff},
    {"aten.repeat_interleave.Tensor", repeat_interleave},
    {"aten.repeat_interleave.self_int", repeat_interleave_int},
};

}  // namespace

std::span<const KernelRow> rearrange_kernels() { return kRows; }

}  // namespace sg::cpu
