// Sorting, and the largest elements of a row. NaN is larger than all numbers.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "librun/cpu/kernels.h"
#include "librun/cpu/radix_order.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

template <class T>
bool is_nan(T value) {
  if constexpr (std::is_integral_v<T>) return false;
  else return value != value;
}

template <class T>
struct Element {
  Compute<T> value;
  int64_t index;
};

template <class T>
bool above(const Element<T>& a, const Element<T>& b) {
  return (is_nan(a.value) && !is_nan(b.value)) || a.value > b.value;
}
template <class T>
bool below(const Element<T>& a, const Element<T>& b) {
  return (!is_nan(a.value) && is_nan(b.value)) || a.value < b.value;
}

template <class T>
void load(const T* x, int64_t n, Element<T>* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = {static_cast<Compute<T>>(x[i]), i};
}

// A buffer for one row per thread.
template <class T>
Element<T>* row_buffers(KernelCall& call, int64_t length) {
  return call.scratch().take<Element<T>>(length * call.team().size());
}

template <class T>
void sort_by_comparing(const T* x, int64_t n, bool descending, Element<T>* elements, T* values, int64_t* indices) {
  load(x, n, elements);
  std::stable_sort(elements, elements + n, descending ? above<T> : below<T>);
  for (int64_t i = 0; i < n; ++i) {
    if (values) values[i] = static_cast<T>(elements[i].value);
    indices[i] = elements[i].index;
  }
}

template <class T>
void sort_rows(KernelCall& call, const Rows& rows, bool descending, T* values, int64_t* indices) {
  const int64_t n = rows.length;
  const bool digits = n >= kLeastRadix && n <= int64_t{UINT32_MAX} && (kHasRadixKey<T> || std::is_same_v<T, int64_t>);
  Element<T>* buffers = row_buffers<T>(call, digits && kHasRadixKey<T> ? 0 : n);
  auto* items = call.scratch().template take<KeyedIndex>(digits ? 2 * n * call.team().size() : 0);
  for_rows(call, rows.count, n, [&](int64_t row, int thread) {
    const T* x = rows.tensor.as<T>() + row * n;
    T* to = values ? values + row * n : nullptr;
    KeyedIndex* own = items + thread * 2 * n;
    if (!digits || !radix_items(x, n, descending, own))
      return sort_by_comparing(x, n, descending, buffers + thread * n, to, indices + row * n);
    radix_sort(own, own + n, n);
    for (int64_t i = 0; i < n; ++i) {
      if (to) to[i] = x[own[i].index];
      indices[row * n + i] = own[i].index;
    }
  });
}

// Always stable: of equal elements PyTorch may give any order, which depends on the processor. `values` may be null.
Status sort_into(KernelCall& call, const Tensor* values, const Tensor& indices) {
  int64_t axis = call.integer("dim");
  bool descending = call.flag("descending");
  Rows rows = rows_of(call, call.tensor("self"), axis);
  ResultRows to_indices(call, indices, axis), to_values(call, values ? *values : indices, axis);
  visit_dtype(rows.tensor.dtype, [&]<class T>() {
    if constexpr (!is_complex_type<T>)
      sort_rows<T>(call, rows, descending, values ? to_values.tensor().as<T>() : nullptr,
                   to_indices.tensor().as<int64_t>());
  });
  to_indices.store(call);
  if (values) to_values.store(call);
  return ok_status();
}

Status sort(KernelCall& call) { return sort_into(call, &call.result(0), call.result(1)); }
Status argsort(KernelCall& call) { return sort_into(call, nullptr, call.result()); }

// Which of equal elements are chosen, and in which order, follows PyTorch on the CPU: a partial sort for few of many,
// else a selection whose first part is sorted.
template <class T>
void choose(Element<T>* x, int64_t n, int64_t k, bool largest, bool sorted) {
  auto before = largest ? above<T> : below<T>;
  if (k * 64 <= n) return std::partial_sort(x, x + k, x + n, before);
  std::nth_element(x, x + k - 1, x + n, before);
  if (sorted) std::sort(x, x + k - 1, before);
}

Status topk(KernelCall& call) {
  int64_t axis = call.integer("dim"), k = call.integer("k");
  bool largest = call.flag("largest"), sorted = call.flag("sorted");
  Rows rows = rows_of(call, call.tensor("self"), axis);
  if (k < 0 || k > rows.tensor.dim(-1))
    return call.fail("the largest " + std::to_string(k) + " of " + std::to_string(rows.tensor.dim(-1)) +
                     " elements do not exist");
  if (call.tensor("self").rank == 0) k = 1;  // PyTorch's way with a number: it is there for k = 0, too
  if (k == 0) return ok_status();
  ResultRows values(call, call.result(0), axis), indices(call, call.result(1), axis);
  visit_dtype(rows.tensor.dtype, [&]<class T>() {
    if constexpr (!is_complex_type<T>) {
      Element<T>* buffers = row_buffers<T>(call, rows.length);
      for_rows(call, rows.count, rows.length, [&](int64_t row, int thread) {
        Element<T>* elements = buffers + thread * rows.length;
        load(rows.tensor.as<T>() + row * rows.length, rows.length, elements);
        choose<T>(elements, rows.length, k, largest, sorted);
        for (int64_t i = 0; i < k; ++i) {
          values.tensor().as<T>()[row * k + i] = static_cast<T>(elements[i].value);
          indices.tensor().as<int64_t>()[row * k + i] = elements[i].index;
        }
      });
    }
  });
  values.store(call);
  indices.store(call);
  return ok_status();
}

bool ignores_nan(const KernelCall& call) { return call.op().name.starts_with("aten.nanmedian"); }

// The lower of two middle elements; the first NaN if there is one, unless NaNs are ignored. `indices` may be null.
Status median_rows(KernelCall& call, const Rows& rows, const Tensor& values, const Tensor* indices) {
  visit_dtype(rows.tensor.dtype, [&]<class T>() {
    if constexpr (!is_complex_type<T>) {
      Element<T>* buffers = row_buffers<T>(call, rows.length);
      for_rows(call, rows.count, rows.length, [&](int64_t row, int thread) {
        Element<T>* x = buffers + thread * rows.length;
        load(rows.tensor.as<T>() + row * rows.length, rows.length, x);
        auto counts = [](const Element<T>& e) { return !is_nan(e.value); };
        Element<T>*end = x + rows.length, *nan = std::find_if_not(x, end, counts);
        int64_t counted = nan == end ? rows.length : std::count_if(x, end, counts);
        bool found = nan != end && (counted == 0 || !ignores_nan(call));
        Element<T>* middle = found ? nan : x + (counted - 1) / 2;
        if (!found) std::nth_element(x, middle, end, below<T>);
        values.as<T>()[row] = static_cast<T>(middle->value);
        if (indices) indices->as<int64_t>()[row] = middle->index;
      });
    }
  });
  return ok_status();
}

Status median(KernelCall& call) {
  Tensor all = contiguous(call, call.tensor("self"));
  if (all.elements() > 0) return median_rows(call, rows_of_length(all, all.elements()), call.result(), nullptr);
  if (!is_floating(all.dtype)) return call.fail("there is no median of no elements");
  fill(call, call.result(), Scalar::floating(std::nan("")));
  return ok_status();
}

// The most frequent value, the least if there are several, and its last position.
Status mode_rows(KernelCall& call, const Rows& rows, const Tensor& values, const Tensor* indices) {
  visit_dtype(rows.tensor.dtype, [&]<class T>() {
    if constexpr (!is_complex_type<T>) {
      Element<T>* buffers = row_buffers<T>(call, rows.length);
      for_rows(call, rows.count, rows.length, [&](int64_t row, int thread) {
        Element<T>* x = buffers + thread * rows.length;
        load(rows.tensor.as<T>() + row * rows.length, rows.length, x);
        std::stable_sort(x, x + rows.length, below<T>);
        int64_t most = 0, run = 0;
        Element<T> found = x[0];
        for (int64_t i = 0; i < rows.length; ++i) {
          ++run;
          if (i + 1 < rows.length && x[i].value == x[i + 1].value) continue;
          if (run > most) most = run, found = x[i];
          run = 0;
        }
        values.as<T>()[row] = static_cast<T>(found.value);
        indices->as<int64_t>()[row] = found.index;
      });
    }
  });
  return ok_status();
}

// Picks one element of each row along an axis: its value and its position.
using PickRows = Status (*)(KernelCall&, const Rows&, const Tensor& values, const Tensor* indices);

Status pick_along(KernelCall& call, PickRows pick, const char* what) {
  const Tensor& self = call.tensor("self");
  int64_t axis = call.integer("dim");
  Rows rows = rows_of(call, self, axis);
  auto kept = [&](const Tensor& result) {
    return result.rank == self.rank && self.rank > 0 ? drop_axis(result, wrap_axis(axis, self.rank)) : result;
  };
  Tensor to_values = kept(call.result(0)), to_indices = kept(call.result(1));
  if (to_values.elements() == 0) return ok_status();
  if (rows.length == 0) return call.fail("there is no " + std::string(what) + " of no elements");
  Tensor values = call.scratch().tensor(self.dtype, to_values.sizes()),
         indices = call.scratch().tensor(DType::i64, to_values.sizes());
  SG_TRY(pick(call, rows, values, &indices));
  copy(call, to_values, values);
  copy(call, to_indices, indices);
  return ok_status();
}

Status median_along(KernelCall& call) { return pick_along(call, median_rows, "median"); }
Status mode(KernelCall& call) { return pick_along(call, mode_rows, "mode"); }

constexpr KernelRow kRows[] = {
    {"aten.sort.default", sort},       {"aten.sort.stable", sort},         {"aten.argsort.default", argsort},
    {"aten.argsort.stable", argsort},  {"aten.topk.default", topk},        {"aten.median.default", median},
    {"aten.median.dim", median_along}, {"aten.nanmedian.default", median}, {"aten.nanmedian.dim", median_along},
    {"aten.mode.default", mode},
};

}  // namespace

std::span<const KernelRow> sort_kernels() { return kRows; }

}  // namespace sg::cpu
