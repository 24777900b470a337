#include "librun/cpu/selection.h"

#include <algorithm>
#include <cstring>

#include "librun/cpu/fill.h"
#include "librun/cpu/indices.h"
#include "librun/cpu/stable_order.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

constexpr int64_t kChunk = 256;  // elements accumulated at a time

struct Bytes16 {
  uint64_t low, high;
};

template <class Fn>
void visit_size(int bytes, const Fn& fn) {
  switch (bytes) {
    case 1: return fn.template operator()<uint8_t>();
    case 2: return fn.template operator()<uint16_t>();
    case 4: return fn.template operator()<uint32_t>();
    case 8: return fn.template operator()<uint64_t>();
    default: return fn.template operator()<Bytes16>();
  }
}

int64_t grain_of(int64_t work) { return std::max<int64_t>(1, kPieceElements / std::max<int64_t>(work, 1)); }

template <class E>
void copy_inner(E* to, const Selection& a, const E* from, const Selection& b) {
  if (a.inner_run && b.inner_run) {
    std::memcpy(to, from, static_cast<size_t>(a.inner.count) * sizeof(E));
  } else {
    for (int64_t i = 0; i < a.inner.count; ++i) to[a.inner.at[i]] = from[b.inner.at[i]];
  }
}

template <class T>
T add_elements(T a, T b) {  // integers wrap around
  if constexpr (std::is_same_v<T, bool>) return a || b;
  else if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else return a + b;
}

template <class T>
T scaled(T value, Scalar scale) {
  if constexpr (std::is_same_v<T, bool>) return value && scale.to_double() != 0;
  else if constexpr (is_complex_type<T>) return value * static_cast<T>(scale.to_complex());
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(value) * static_cast<uint64_t>(scale.to_int()));
  else return value * static_cast<T>(scale.to_double());
}

bool is_one(Scalar s) { return s.to_complex() == std::complex<double>(1, 0); }

// One place: adds every pick of it to the current value, in order.
template <class T>
void add_group(T* place, const Selection& a, const T* from, const Selection& b, const int64_t* order, int64_t picks,
               Scalar scale) {
  using C = Compute<T>;
  bool plain = is_one(scale);
  C sum[kChunk];
  for (int64_t first = 0; first < a.inner.count; first += kChunk) {
    int64_t n = std::min(kChunk, a.inner.count - first);
    auto at = [&](const Selection& s, int64_t i) { return s.inner_run ? first + i : s.inner.at[first + i]; };
    for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<C>(place[at(a, i)]);
    for (int64_t k = 0; k < picks; ++k) {
      const T* added = from + b.picked.at[order[k]];
      if (plain && b.inner_run)
        for (int64_t i = 0; i < n; ++i) sum[i] = add_elements<C>(sum[i], static_cast<C>(added[first + i]));
      else if (plain)
        for (int64_t i = 0; i < n; ++i) sum[i] = add_elements<C>(sum[i], static_cast<C>(added[at(b, i)]));
      else
        for (int64_t i = 0; i < n; ++i)
          sum[i] = add_elements<C>(sum[i], scaled<C>(static_cast<C>(added[at(b, i)]), scale));
    }
    for (int64_t i = 0; i < n; ++i) place[at(a, i)] = static_cast<T>(sum[i]);
  }
}

// Adds picks one after the other, for elements [first, first + n) of each: the same bits as add_group for types that
// are summed in their own precision.
template <class T>
void add_in_order(const Selection& a, const Selection& b, int64_t outer, int64_t first, int64_t n, Scalar scale) {
  const bool plain = is_one(scale), runs = a.inner_run && b.inner_run;
  if (n == 1 && plain) {
    T* const places = a.tensor.as<T>() + a.outer.at[outer] + a.inner.at[first];
    const T* const values = b.tensor.as<T>() + b.outer.at[outer] + b.inner.at[first];
    for (int64_t k = 0; k < a.picked.count; ++k)
      places[a.picked.at[k]] = add_elements<T>(places[a.picked.at[k]], values[b.picked.at[k]]);
    return;
  }
  for (int64_t k = 0; k < a.picked.count; ++k) {
    T* place = a.tensor.as<T>() + a.outer.at[outer] + a.picked.at[k];
    const T* added = b.tensor.as<T>() + b.outer.at[outer] + b.picked.at[k];
    if (plain && runs)
      for (int64_t i = first; i < first + n; ++i) place[i] = add_elements<T>(place[i], added[i]);
    else
      for (int64_t i = first; i < first + n; ++i) {
        T& to = place[a.inner_run ? i : a.inner.at[i]];
        const T value = added[b.inner_run ? i : b.inner.at[i]];
        to = add_elements<T>(to, plain ? value : scaled<T>(value, scale));
      }
  }
}

// The same for single elements of a type that is summed in a wider one: sums are kept by place, in `sums`.
template <class T>
void add_widened(const Selection& a, const Selection& b, int64_t outer, Scalar scale, Compute<T>* sums) {
  using C = Compute<T>;
  T* const places = a.tensor.as<T>() + a.outer.at[outer];
  const T* const values = b.tensor.as<T>() + b.outer.at[outer];
  const int64_t* at = a.picked.at;
  const int64_t count = a.picked.count;
  const bool plain = is_one(scale);
  for (int64_t k = 0; k < count; ++k) sums[at[k]] = static_cast<C>(places[at[k]]);
  for (int64_t k = 0; k < count; ++k) {
    const C value = static_cast<C>(values[b.picked.at[k]]);
    sums[at[k]] = add_elements<C>(sums[at[k]], plain ? value : scaled<C>(value, scale));
  }
  for (int64_t k = 0; k < count; ++k) places[at[k]] = static_cast<T>(sums[at[k]]);
}

// Whether adding picks without grouping them pays, though it may leave threads idle: for picks of few elements a sort
// by place takes as long as several of them would need.
bool is_worth_adding(int64_t units, int64_t inner, int threads) {
  constexpr int64_t kFew = 8, kAsLongAsASort = 6;
  return units * (inner <= kFew ? kAsLongAsASort : 1) >= threads;
}

// Returns true, having added everything, if the threads can share the picks without grouping them by place.
template <class T>
bool add_ungrouped(KernelCall& call, const Selection& to, const Selection& from, Scalar scale) {
  const int64_t chunks = (to.inner.count + kChunk - 1) / kChunk, units = to.outer.count * chunks;
  if (!is_worth_adding(units, to.inner.count, call.team().size())) return false;
  if constexpr (!std::is_same_v<Compute<T>, T>) {
    constexpr int64_t kSparse = 4;  // places for each pick: what the sums take
    if (to.inner.count != 1) return false;
    const int64_t span = *std::max_element(to.picked.at, to.picked.at + to.picked.count) + 1;
    if (span > kSparse * to.picked.count) return false;
    auto* sums = call.scratch().template take<Compute<T>>(call.team().size() * span);
    call.team().parallel_for_indexed(units, grain_of(to.picked.count), [&](int thread, int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) add_widened<T>(to, from, unit, scale, sums + thread * span);
    });
  } else {
    call.team().parallel_for(
        units, grain_of(to.picked.count * std::min(to.inner.count, kChunk)), [&](int64_t begin, int64_t end) {
          for (int64_t unit = begin; unit < end; ++unit) {
            const int64_t first = unit % chunks * kChunk;
            add_in_order<T>(to, from, unit / chunks, first, std::min(kChunk, to.inner.count - first), scale);
          }
        });
  }
  return true;
}

// Offsets of all positions over `count` axes of `t` from `first` on, in row-major order.
OffsetTable offsets_over(KernelCall& call, const Tensor& t, int first, int count) {
  OffsetTable table;
  table.count = 1;
  for (int axis = first; axis < first + count; ++axis) table.count *= t.dim(axis);
  auto* at = call.scratch().take<int64_t>(std::max<int64_t>(table.count, 1));
  table.at = at;
  at[0] = 0;
  int64_t filled = table.count == 0 ? 0 : 1;
  for (int axis = first + count - 1; axis >= first && filled > 0; --axis) {  // innermost first: blocks repeat, shifted
    for (int64_t i = 1; i < t.dim(axis); ++i)
      for (int64_t j = 0; j < filled; ++j) at[i * filled + j] = at[j] + i * t.step(axis);
    filled *= t.dim(axis);
  }
  return table;
}

}  // namespace

Selection whole_selection(KernelCall& call, const Tensor& t, int first, int indexed) {
  Selection s{t, offsets_over(call, t, 0, first), offsets_over(call, t, first, indexed),
              offsets_over(call, t, first + indexed, t.rank - first - indexed), true};
  for (int64_t i = 0; i < s.inner.count && s.inner_run; ++i) s.inner_run = s.inner.at[i] == i;
  return s;
}

Result<Selection> axis_selection(KernelCall& call, const Tensor& t, int64_t axis, const Tensor& index, bool wraps) {
  Tensor self = t;
  if (t.rank == 0) self.rank = 1, self.shape[0] = self.stride[0] = 1;
  int at = wrap_axis(axis, self.rank);
  Tensor probe = self;  // reduced to one element along the axis, for the offset tables of the others
  probe.shape[static_cast<size_t>(at)] = 1;
  Selection s = whole_selection(call, probe, at, 1);
  s.tensor = self;
  int64_t n = index.elements(), size = self.dim(at), step = self.step(at);
  const auto* from = index.as<int64_t>();
  auto* picked = call.scratch().take<int64_t>(std::max<int64_t>(n, 1));
  IndexCheck check;
  for (int64_t i = 0; i < n; ++i)
    picked[i] = (wraps ? check.wrap(from[i], size, i) : check.hold(from[i], size, i)) * step;
  SG_TRY(check.status(call, from, size));
  s.picked = {picked, n};
  return s;
}

Groups group_by_key(KernelCall& call, const int64_t* keys, int64_t n) {
  auto* order = call.scratch().take<int64_t>(n + 1);
  auto* begin = call.scratch().take<int64_t>(n + 1);
  stable_order(keys, n, order);
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i)
    if (i == 0 || keys[order[i]] != keys[order[i - 1]]) begin[count++] = i;
  begin[count] = n;
  return {order, begin, count};
}

void copy_selection_once(KernelCall& call, const Selection& to, const Selection& from) {
  int64_t picks = to.picked.count;
  if (to.inner.count == 0) return;
  visit_size(dtype_bytes(to.tensor.dtype), [&]<class E>() {
    call.team().parallel_for(to.outer.count * picks, grain_of(to.inner.count), [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end;) {
        const int64_t p = unit / picks, first = unit % picks, last = std::min(picks, first + end - unit);
        E* const places = to.tensor.as<E>() + to.outer.at[p];
        const E* const values = from.tensor.as<E>() + from.outer.at[p];
        if (to.inner.count == 1)
          for (int64_t b = first; b < last; ++b) places[to.picked.at[b]] = values[from.picked.at[b]];
        else
          for (int64_t b = first; b < last; ++b)
            copy_inner(places + to.picked.at[b], to, values + from.picked.at[b], from);
        unit += last - first;
      }
    });
  });
}

void copy_selection(KernelCall& call, const Selection& to, const Selection& from) {
  Groups groups = group_by_key(call, to.picked.at, to.picked.count);
  if (groups.count == to.picked.count) return copy_selection_once(call, to, from);
  Selection last_to = to, last_from = from;
  auto* places = call.scratch().take<int64_t>(groups.count + 1);
  auto* sources = call.scratch().take<int64_t>(groups.count + 1);
  for (int64_t g = 0; g < groups.count; ++g) {
    int64_t last = groups.order[groups.begin[g + 1] - 1];
    places[g] = to.picked.at[last];
    sources[g] = from.picked.at[last];
  }
  last_to.picked = {places, groups.count};
  last_from.picked = {sources, groups.count};
  copy_selection_once(call, last_to, last_from);
}

void add_selection(KernelCall& call, const Selection& to, const Selection& from, Scalar scale) {
  if (to.inner.count == 0 || to.picked.count == 0) return;
  if (visit_dtype(to.tensor.dtype, [&]<class T>() { return add_ungrouped<T>(call, to, from, scale); })) return;
  Groups groups = group_by_key(call, to.picked.at, to.picked.count);
  int64_t work = to.inner.count * to.picked.count / groups.count;
  visit_dtype(to.tensor.dtype, [&]<class T>() {
    call.team().parallel_for(to.outer.count * groups.count, grain_of(work), [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        int64_t p = unit / groups.count, g = unit % groups.count;
        const int64_t* order = groups.order + groups.begin[g];
        add_group(to.tensor.as<T>() + to.outer.at[p] + to.picked.at[order[0]], to,
                  from.tensor.as<T>() + from.outer.at[p], from, order, groups.begin[g + 1] - groups.begin[g], scale);
      }
    });
  });
}

}  // namespace sg::cpu
