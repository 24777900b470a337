// gather and scatter: one index per element, along one axis.
#include <algorithm>
#include <atomic>
#include <limits>

#include "librun/cpu/fill.h"
#include "librun/cpu/indices.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/selection.h"
#include "librun/element.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

constexpr int64_t kLinesTogether = 64;
constexpr int kThreadsOfOneLine = 6;  // for more of them it pays to sort a single line's indices (selection.cc)

// `t` narrowed to the positions of `index` on all axes but `axis`.
Tensor narrowed(const Tensor& t, const Tensor& index, int axis) {
  Tensor out = t;
  for (int i = 0; i < t.rank; ++i)
    if (i != axis) out.shape[static_cast<size_t>(i)] = index.dim(i);
  return out;
}

struct Indexed {
  Tensor index;  // i64, with at least one axis
  int axis;
  int64_t size;  // size of the indexed tensor along the axis
};

bool all_within(KernelCall& call, const Tensor& index, int64_t size) {
  RowWalker walk({&index});
  std::atomic<bool> within{true};
  parallel_rows(call.team(), walk, [&](const int64_t* offset, int64_t, int64_t length) {
    const int64_t* at = index.as<int64_t>() + offset[0];
    bool ok = true;
    for (int64_t i = 0; i < length; ++i)
      ok &= static_cast<uint64_t>(at[i * walk.step(0)]) < static_cast<uint64_t>(size);
    if (!ok) within.store(false, std::memory_order_relaxed);
  });
  return within.load(std::memory_order_relaxed);
}

Result<Indexed> checked_index(KernelCall& call, const Tensor& given, const Tensor& into, int64_t axis) {
  Indexed x{with_axis(given.dtype == DType::i64 ? given : contiguous_as(call, given, DType::i64)), 0, 0};
  x.axis = wrap_axis(axis, x.index.rank);
  x.size = with_axis(into).dim(x.axis);
  Tensor once = x.index;  // repetitions along expanded axes are checked once, unless there is an error
  for (int i = 0; i < once.rank; ++i)
    if (once.step(i) == 0 && once.dim(i) > 1) once.shape[static_cast<size_t>(i)] = 1;
  if (all_within(call, once, x.size)) return x;
  Tensor index = contiguous(call, x.index);
  IndexCheck check;
  for (int64_t i = 0; i < index.elements(); ++i) check.hold(index.as<int64_t>()[i], x.size, i);
  SG_TRY(check.status(call, index.as<int64_t>(), x.size));
  return x;
}

// Whether all lines along the axis have the same indices, so that whole slices are selected.
bool picks_slices(const Indexed& x) {
  for (int i = 0; i < x.index.rank; ++i)
    if (i != x.axis && x.index.dim(i) > 1 && x.index.step(i) != 0) return false;
  return x.index.elements() > 0;
}

// Tables of offsets, which whole slices are worth, cost more than single elements do.
bool picks_elements(const Indexed& x) { return x.index.elements() == x.index.dim(x.axis); }

Tensor index_line(KernelCall& call, const Indexed& x) {
  Tensor line = x.index;
  line.rank = 1;
  line.shape[0] = x.index.dim(x.axis);
  line.stride[0] = x.index.step(x.axis);
  return contiguous(call, line);
}

template <class T>
void gather_elements(KernelCall& call, const Tensor& out, const Tensor& self, const Indexed& x) {
  Tensor lines = self;
  lines.shape = x.index.shape;
  lines.stride[static_cast<size_t>(x.axis)] = 0;
  int64_t along = self.step(x.axis);
  RowWalker walk({&out, &x.index, &lines});
  int64_t to_step = walk.step(0), index_step = walk.step(1), line_step = walk.step(2);
  parallel_rows(call.team(), walk, [&](const int64_t* offset, int64_t, int64_t length) {
    T* to = out.as<T>() + offset[0];
    const int64_t* index = x.index.as<int64_t>() + offset[1];
    const T* from = self.as<T>() + offset[2];
    for (int64_t i = 0; i < length; ++i) to[i * to_step] = from[i * line_step + index[i * index_step] * along];
  });
}

Status gather(KernelCall& call) {
  if (call.result().elements() == 0) return ok_status();  // an empty index may have any rank
  Tensor self = with_axis(call.tensor("self"));
  if (self.conjugate) self = contiguous(call, self);
  SG_ASSIGN(Indexed x, checked_index(call, call.tensor("index"), self, call.integer("dim")));
  Tensor out = with_axis(call.result());
  if (picks_slices(x) && !picks_elements(x)) {
    SG_ASSIGN(Selection from,
              axis_selection(call, narrowed(self, x.index, x.axis), x.axis, index_line(call, x), false));
    copy_selection_once(call, whole_selection(call, out, x.axis, 1), from);
    return ok_status();
  }
  visit_dtype(self.dtype, [&]<class T>() { gather_elements<T>(call, out, self, x); });
  return ok_status();
}

// Calls fn(place, value) for every element of the index: lines in parallel on all threads, each line in order.
template <class T, class V, class Fn>
void scatter_elements(KernelCall& call, const Tensor& out, const Tensor& src, const Indexed& x, const Fn& fn) {
  Tensor places = drop_axis(narrowed(out, x.index, x.axis), x.axis), indices = drop_axis(x.index, x.axis);
  Tensor values = drop_axis(narrowed(src, x.index, x.axis), x.axis);
  int64_t n = x.index.dim(x.axis), place_along = out.step(x.axis), index_along = x.index.step(x.axis),
          value_along = src.step(x.axis);
  RowWalker walk({&places, &indices, &values});
  int64_t parts = (walk.length() + kLinesTogether - 1) / kLinesTogether;
  bool line_by_line = place_along < walk.step(0);
  const bool slices = walk.step(0) == 1 && walk.step(1) == 0 && walk.step(2) == 1;  // whole rows share an index
  int64_t grain =
      std::max<int64_t>(1, kPieceElements / std::max<int64_t>(n * std::min(walk.length(), kLinesTogether), 1));
  call.team().parallel_for(walk.rows() * parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      walk.for_rows(unit / parts, unit / parts + 1, [&](const int64_t* offset, int64_t) {
        int64_t first = unit % parts * kLinesTogether, last = std::min(walk.length(), first + kLinesTogether);
        auto one = [&](int64_t i, int64_t j) {
          int64_t index = x.index.as<int64_t>()[offset[1] + j * walk.step(1) + i * index_along];
          fn(out.as<T>()[offset[0] + j * walk.step(0) + index * place_along],
             src.as<V>()[offset[2] + j * walk.step(2) + i * value_along]);
        };
        if (slices)
          for (int64_t i = 0; i < n; ++i) {
            const int64_t index = x.index.as<int64_t>()[offset[1] + i * index_along];
            T* to = out.as<T>() + offset[0] + index * place_along;
            const V* from = src.as<V>() + offset[2] + i * value_along;
            for (int64_t j = first; j < last; ++j) fn(to[j], from[j]);
          }
        else if (line_by_line)
          for (int64_t j = first; j < last; ++j)
            for (int64_t i = 0; i < n; ++i) one(i, j);
        else
          for (int64_t i = 0; i < n; ++i)
            for (int64_t j = first; j < last; ++j) one(i, j);
      });
    }
  });
}

enum class Reduce : uint8_t { none, sum, prod, mean, amax, amin };

Reduce reduce_of(std::string_view name) {
  return name == "add" || name == "sum"         ? Reduce::sum
         : name == "multiply" || name == "prod" ? Reduce::prod
         : name == "mean"                       ? Reduce::mean
         : name == "amax"                       ? Reduce::amax
         : name == "amin"                       ? Reduce::amin
                                                : Reduce::none;
}

// As PyTorch multiplies, without C's repair of infinite products.
template <class T>
T plain_product(T a, T b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

template <Reduce how, class T>
T combined(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return how == Reduce::prod || how == Reduce::amin ? a && b : a || b;
  } else if constexpr (is_complex_type<T>) {
    return how == Reduce::prod ? plain_product(a, b) : a + b;
  } else {
    if (how == Reduce::amax) return b > a || b != b ? b : a;
    if (how == Reduce::amin) return b < a || b != b ? b : a;
    if constexpr (std::is_integral_v<T>) {
      auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
      return static_cast<T>(how == Reduce::prod ? x * y : x + y);
    } else {
      return how == Reduce::prod ? a * b : a + b;
    }
  }
}

template <class T>
T neutral(Reduce how) {
  if constexpr (is_complex_type<T>) {
    return how == Reduce::prod ? T(1) : T(0);
  } else {
    using Limits = std::numeric_limits<T>;
    T low = Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
    T high = Limits::has_infinity ? Limits::infinity() : Limits::max();
    return how == Reduce::prod ? T(1) : how == Reduce::amax ? low : how == Reduce::amin ? high : T(0);
  }
}

// Divides each place by the number of values it received; integers round down.
template <class T>
void divide_by_counts(KernelCall& call, const Tensor& out, const Tensor& src, const Indexed& x, bool include_self) {
  Tensor counts = call.scratch().tensor(DType::i64, out.sizes());
  fill(call, counts, Scalar::integer(include_self ? 1 : 0));
  scatter_elements<int64_t, T>(call, counts, src, x, [](int64_t& count, const T&) { ++count; });
  RowWalker walk({&out, &counts});
  parallel_rows(call.team(), walk, [&](const int64_t* offset, int64_t, int64_t length) {
    for (int64_t i = 0; i < length; ++i) {
      T& value = out.as<T>()[offset[0] + i * walk.step(0)];
      int64_t count = std::max<int64_t>(1, counts.as<int64_t>()[offset[1] + i * walk.step(1)]);
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        auto whole = static_cast<int64_t>(value);
        value = static_cast<T>(whole / count - (whole % count != 0 && whole < 0));
      } else if constexpr (!std::is_same_v<T, bool>) {
        value /= static_cast<T>(static_cast<double>(count));
      }
    }
  });
}

template <Reduce how, class T>
void combine_elements(KernelCall& call, const Tensor& out, const Tensor& src, const Indexed& x) {
  scatter_elements<T, T>(call, out, src, x, [](T& place, const T& value) { place = combined<how>(place, value); });
}

// Reduces into `out`, in the arithmetic of its dtype.
template <class T>
void reduce_into(KernelCall& call, const Tensor& out, const Tensor& src, const Indexed& x, Reduce how,
                 bool include_self) {
  if (!include_self) scatter_elements<T, T>(call, out, src, x, [=](T& place, const T&) { place = neutral<T>(how); });
  switch (how) {
    case Reduce::prod: combine_elements<Reduce::prod, T>(call, out, src, x); break;
    case Reduce::amax: combine_elements<Reduce::amax, T>(call, out, src, x); break;
    case Reduce::amin: combine_elements<Reduce::amin, T>(call, out, src, x); break;
    default: combine_elements<Reduce::sum, T>(call, out, src, x); break;
  }
  if (how == Reduce::mean) divide_by_counts<T>(call, out, src, x, include_self);
}

// `t`, or a copy if it overlaps the memory being written: an index must stay as checked, and a source unchanged.
Tensor apart_from(KernelCall& call, const Tensor& t, const Tensor& written) {
  bool overlaps = t.data < written.data + extent_bytes(written) && written.data < t.data + extent_bytes(t);
  if (!overlaps) return t;
  Tensor held = call.scratch().tensor(t.dtype, t.sizes());
  copy(call, held, t);
  return held;
}

DType computed(DType t) { return t == DType::bf16 || t == DType::f16 ? DType::f32 : t; }

Status scatter(KernelCall& call, int64_t dim, Tensor src, Reduce how, bool include_self) {
  const Tensor& self = call.tensor("self");
  Tensor index = apart_from(call, call.tensor("index"), call.result());
  src = apart_from(call, src, call.result());
  if (call.result().data != self.data || !std::ranges::equal(call.result().strides(), self.strides()))
    copy(call, call.result(), self);
  if (index.elements() == 0) return ok_status();  // of any rank
  SG_ASSIGN(Indexed x, checked_index(call, index, self, dim));
  Tensor out = with_axis(call.result());
  src = with_axis(src);
  bool slices = picks_slices(x) && (how == Reduce::none || (how == Reduce::sum && include_self));
  if (picks_elements(x) && computed(out.dtype) == out.dtype && call.team().size() <= kThreadsOfOneLine) slices = false;
  bool widened = how != Reduce::none && !slices && computed(out.dtype) != out.dtype;
  DType dtype = widened ? computed(out.dtype) : out.dtype;
  if (src.dtype != dtype || src.conjugate) src = contiguous_as(call, src, dtype);
  if (slices) {
    SG_ASSIGN(Selection to, axis_selection(call, narrowed(out, x.index, x.axis), x.axis, index_line(call, x), false));
    Tensor values = narrowed(src, x.index, x.axis);
    values.shape[static_cast<size_t>(x.axis)] = x.index.dim(x.axis);
    Selection from = whole_selection(call, values, x.axis, 1);
    if (how == Reduce::none) copy_selection(call, to, from);
    else add_selection(call, to, from, Scalar::integer(1));
    return ok_status();
  }
  Tensor target = widened ? contiguous_as(call, out, dtype) : out;
  visit_dtype(dtype, [&]<class T>() {
    if (how == Reduce::none)
      return scatter_elements<T, T>(call, target, src, x, [](T& place, const T& value) { place = value; });
    if constexpr (!is_half_type<T>) reduce_into<T>(call, target, src, x, how, include_self);
  });
  if (widened) copy(call, out, target);
  return ok_status();
}

// A number as the source.
Tensor value_source(KernelCall& call) {
  Tensor value = call.scratch().tensor(call.result().dtype, {});
  fill(call, value, call.scalar("value"));
  return broadcast_to(value, call.tensor("index").sizes());
}

Status scatter_src(KernelCall& call) {
  return scatter(call, call.integer("dim"), call.tensor("src"), Reduce::none, true);
}
Status scatter_value(KernelCall& call) {
  return scatter(call, call.integer("dim"), value_source(call), Reduce::none, true);
}
Status scatter_add(KernelCall& call) {
  return scatter(call, call.integer("dim"), call.tensor("src"), Reduce::sum, true);
}
Status scatter_add_rows(KernelCall& call) { return scatter(call, 0, call.tensor("src"), Reduce::sum, true); }

Result<Reduce> named_reduce(KernelCall& call) {
  Reduce how = reduce_of(call.text("reduce"));
  if (how == Reduce::none) return call.fail("there is no reduction '" + std::string(call.text("reduce")) + "'");
  return how;
}

Status scatter_src_reduce(KernelCall& call) {
  SG_ASSIGN(Reduce how, named_reduce(call));
  return scatter(call, call.integer("dim"), call.tensor("src"), how, true);
}

Status scatter_value_reduce(KernelCall& call) {
  SG_ASSIGN(Reduce how, named_reduce(call));
  return scatter(call, call.integer("dim"), value_source(call), how, true);
}

Status scatter_reduce(KernelCall& call) {
  SG_ASSIGN(Reduce how, named_reduce(call));
  return scatter(call, call.integer("dim"), call.tensor("src"), how, call.flag("include_self"));
}

constexpr KernelRow kRows[] = {
    {"aten.gather.default", gather},
    {"aten.scatter.src", scatter_src},
    {"aten.scatter.value", scatter_value},
    {"aten.scatter.reduce", scatter_src_reduce},
    {"aten.scatter.value_reduce", scatter_value_reduce},
    {"aten.scatter_.src", scatter_src},
    {"aten.scatter_.value", scatter_value},
    {"aten.scatter_add.default", scatter_add},
    {"aten.scatter_add_.default", scatter_add},
    {"aten.scatter_reduce.two", scatter_reduce},
    {"aten.scatter_reduce_.two", scatter_reduce},
    {"torchtitan.deterministic_scatter_add.default", scatter_add_rows},
};

}  // namespace

std::span<const KernelRow> scatter_kernels() { return kRows; }

}  // namespace sg::cpu
