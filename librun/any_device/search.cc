// Searching: nonzero, masked_select, unique, searchsorted, isin, one_hot. Some result sizes depend on the data.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "librun/cpu/fill.h"
#include "librun/cpu/indices.h"
#include "librun/cpu/inner_call.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/stable_order.h"
#include "librun/element.h"
#include "librun/work/pool.h"
#include "librun/work/run.h"
#include "librun/work/search.h"
#include "librun/work/shapes.h"

namespace sg::cpu {
namespace {

Status nonzero(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  Tensor flags = contiguous_as(call, self, DType::boolean);
  int64_t total = flags.elements(), n = std::count(flags.as<bool>(), flags.as<bool>() + total, true);
  SG_TRY(result_of_shape(call, 0, std::array<int64_t, 2>{n, self.rank}));
  const Tensor& out = call.result();
  int64_t k = 0;
  for (int64_t i = 0; i < total; ++i) {
    if (!flags.as<bool>()[i]) continue;
    int64_t rest = i;
    for (int axis = self.rank - 1; axis >= 0; --axis) {
      out.as<int64_t>()[k * out.stride[0] + axis * out.stride[1]] = rest % self.dim(axis);
      rest /= self.dim(axis);
    }
    ++k;
  }
  return ok_status();
}

Status masked_select(KernelCall& call) {
  std::vector<int64_t> shape = broadcast_shape(call.tensor("self"), call.tensor("mask"));
  Tensor self = contiguous(call, broadcast_to(call.tensor("self"), shape));
  Tensor mask = contiguous_as(call, broadcast_to(call.tensor("mask"), shape), DType::boolean);
  int64_t total = mask.elements();
  SG_TRY(result_of_shape(call, 0, std::array<int64_t, 1>{std::count(mask.as<bool>(), mask.as<bool>() + total, true)}));
  const Tensor& out = call.result();
  visit_dtype(out.dtype, [&]<class T>() {
    int64_t k = 0;
    for (int64_t i = 0; i < total; ++i)
      if (mask.as<bool>()[i]) out.as<T>()[k++ * out.stride[0]] = self.as<T>()[i];
  });
  return ok_status();
}

Status masked_scatter(KernelCall& call) {
  const Tensor& out = call.result();
  Tensor source = contiguous(call, call.tensor("source"));
  Tensor mask = contiguous_as(call, broadcast_to(call.tensor("mask"), out.sizes()), DType::boolean);
  Tensor values = call.scratch().tensor(out.dtype, out.sizes());
  copy(call, values, broadcast_to(call.tensor("self"), out.sizes()));
  int64_t total = mask.elements(), wanted = std::count(mask.as<bool>(), mask.as<bool>() + total, true);
  if (wanted > source.elements())
    return call.fail("the mask has " + std::to_string(wanted) + " places, but the source " +
                     std::to_string(source.elements()) + " elements");
  visit_dtype(out.dtype, [&]<class T>() {
    int64_t k = 0;
    for (int64_t i = 0; i < total; ++i)
      if (mask.as<bool>()[i]) values.as<T>()[i] = source.as<T>()[k++];
  });
  copy(call, out, values);
  return ok_status();
}

Status masked_scatter_backward(KernelCall& call) {
  const Tensor& out = call.result();
  std::vector<int64_t> shape = broadcast_shape(call.tensor("grad_output"), call.tensor("mask"));
  Tensor grad = contiguous(call, broadcast_to(call.tensor("grad_output"), shape));
  Tensor mask = contiguous_as(call, broadcast_to(call.tensor("mask"), shape), DType::boolean);
  int64_t total = mask.elements(), wanted = std::count(mask.as<bool>(), mask.as<bool>() + total, true);
  if (wanted > out.elements())
    return call.fail("the mask has " + std::to_string(wanted) + " places, but the source " +
                     std::to_string(out.elements()) + " elements");
  Tensor values = call.scratch().tensor(out.dtype, out.sizes());
  visit_dtype(out.dtype, [&]<class T>() {
    int64_t k = 0;
    for (int64_t i = 0; i < total; ++i)
      if (mask.as<bool>()[i]) values.as<T>()[k++] = grad.as<T>()[i];
    std::fill(values.as<T>() + k, values.as<T>() + out.elements(), T());
  });
  copy(call, out, values);
  return ok_status();
}

// Values of the class of `t` that compare like its elements.
template <class Fn>
void visit_compared(KernelCall& call, const Tensor& t, bool floats, const Fn& fn) {
  if (floats) fn(contiguous_as(call, t, DType::f64).template as<double>());
  else fn(contiguous_as(call, t, DType::i64).template as<int64_t>());
}

Status unique(KernelCall& call) {
  Tensor self = contiguous(call, call.tensor("self"));
  int64_t n = self.elements();
  std::vector<int64_t> order(static_cast<size_t>(n)), group(order), first;
  visit_compared(call, self, is_floating(self.dtype), [&](const auto* x) {
    std::vector<int64_t> keys(order.size());
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = order_key(x[i]);
    stable_order(keys.data(), n, order.data());
    for (size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || x[order[i]] != x[order[i - 1]]) first.push_back(static_cast<int64_t>(i));
      group[static_cast<size_t>(order[i])] = static_cast<int64_t>(first.size()) - 1;
    }
  });
  auto count = static_cast<int64_t>(first.size());
  SG_TRY(result_of_shape(call, 0, std::array{count}));
  bool inverse = call.flag("return_inverse"), counts = call.flag("return_counts");
  constexpr int64_t kNothing[] = {0};
  SG_TRY(result_of_shape(call, 1, inverse ? self.sizes() : std::span<const int64_t>(kNothing)));
  SG_TRY(result_of_shape(call, 2, std::array{counts ? count : int64_t{0}}));
  visit_dtype(self.dtype, [&]<class T>() {
    for (int64_t g = 0; g < count; ++g)
      call.result(0).as<T>()[g * call.result(0).stride[0]] =
          self.as<T>()[order[static_cast<size_t>(first[static_cast<size_t>(g)])]];
  });
  if (inverse)
    copy(call, call.result(1), make_tensor(reinterpret_cast<std::byte*>(group.data()), DType::i64, self.sizes()));
  for (int64_t g = 0; counts && g < count; ++g) {
    int64_t end = g + 1 < count ? first[static_cast<size_t>(g + 1)] : n;
    call.result(2).as<int64_t>()[g * call.result(2).stride[0]] = end - first[static_cast<size_t>(g)];
  }
  return ok_status();
}

// The shape of `t` with another size along an axis; a single axis if all elements form a line.
std::vector<int64_t> resized(const Tensor& t, bool flat, int axis, int64_t size) {
  if (flat) return std::vector<int64_t>(1, size);
  std::vector<int64_t> shape(t.sizes().begin(), t.sizes().end());
  shape[static_cast<size_t>(axis)] = size;
  return shape;
}

// The order of the slices of `x`, each of `size` elements: by the first element in which they differ.
template <class T>
void order_slices(const T* x, int64_t n, int64_t size, int64_t* order) {
  std::iota(order, order + n, int64_t{0});
  std::stable_sort(order, order + n, [&](int64_t a, int64_t b) {
    const T *left = x + a * size, *right = x + b * size;
    return std::lexicographical_compare(left, left + size, right, right + size,
                                        [](T u, T v) { return order_key(u) < order_key(v); });
  });
}

// Runs of equal elements, or of equal slices along an axis: the first of each, the run of each element, run lengths.
// `sorted`: of the slices in their order.
Status give_runs(KernelCall& call, bool sorted) {
  const Tensor& given = call.tensor("self");
  const bool flat = !call.has("dim");
  const int axis = flat ? 0 : wrap_axis(call.integer("dim"), given.rank);
  Tensor self = contiguous(call, flat ? given : swap_axes(given, 0, axis));
  const int64_t n = flat ? self.elements() : self.dim(0), size = n == 0 ? 0 : self.elements() / n;
  int64_t *first = call.scratch().take<int64_t>(n + 1), *run = call.scratch().take<int64_t>(n + 1),
          *order = call.scratch().take<int64_t>(n + 1), count = 0;
  visit_compared(call, self, is_floating(self.dtype), [&](const auto* x) {
    if (sorted) order_slices(x, n, size, order);
    else std::iota(order, order + n, int64_t{0});
    auto is_as_before = [&](int64_t i) {
      const auto *slice = x + order[i] * size, *before = x + order[i - 1] * size;
      return std::equal(slice, slice + size, before);
    };
    for (int64_t i = 0; i < n; ++i) {
      if (i == 0 || !is_as_before(i)) first[count++] = i;
      run[order[i]] = count - 1;
    }
  });
  first[count] = n;
  const bool inverse = is_slice_result(call, "return_inverse", 1), counts = is_slice_result(call, "return_counts", 2);
  const std::array<int64_t, 1> line = {n}, none = {0};
  const std::span<const int64_t> places = !inverse ? none : flat ? given.sizes() : std::span<const int64_t>(line);
  SG_TRY(result_of_shape(call, 0, resized(given, flat, axis, count)));
  SG_TRY(result_of_shape(call, 1, places));
  SG_TRY(result_of_shape(call, 2, std::array{counts ? count : int64_t{0}}));
  const auto bytes = static_cast<size_t>(size * dtype_bytes(self.dtype));
  Tensor kept = call.scratch().tensor(self.dtype, resized(self, flat, 0, count));
  for (int64_t g = 0; g < count; ++g)
    std::copy_n(self.data + static_cast<size_t>(order[first[g]]) * bytes, bytes,
                kept.data + static_cast<size_t>(g) * bytes);
  copy(call, flat ? call.result(0) : swap_axes(call.result(0), 0, axis), kept);
  if (inverse) copy(call, call.result(1), make_tensor(reinterpret_cast<std::byte*>(run), DType::i64, places));
  for (int64_t g = 0; counts && g < count; ++g)
    call.result(2).as<int64_t>()[g * call.result(2).stride[0]] = first[g + 1] - first[g];
  return ok_status();
}

Status unique_consecutive(KernelCall& call) { return give_runs(call, false); }
Status unique_dim(KernelCall& call) { return give_runs(call, true); }

// --- sorted sequences ---

// Searches each value in its row's sequence; a single sequence serves all values.
Status search(KernelCall& call, const Tensor& sequence, const Tensor& values, const Tensor* sorter, bool right) {
  bool floats = is_floating(sequence.dtype) || is_floating(values.dtype);
  int64_t length = sequence.rank == 0 ? 1 : sequence.dim(-1), total = values.elements();
  int64_t per_row =
      sequence.rank <= 1 || values.rank == 0 ? std::max<int64_t>(total, 1) : std::max<int64_t>(values.dim(-1), 1);
  const int64_t* order = sorter ? contiguous_as(call, *sorter, DType::i64).as<int64_t>() : nullptr;
  IndexCheck check;
  if (order && on_device(call)) for_each(call, sorter->elements(), 1, work::CheckRange{order, length, report_of(call)});
  for (int64_t i = 0; order && !on_device(call) && i < sorter->elements(); ++i) check.hold(order[i], length, i);
  SG_TRY(check.status(call, order, length));
  Tensor places = workspace(call, DType::i64, values.sizes());
  visit_compared(call, sequence, floats, [&](const auto* seq) {
    using V = std::remove_cvref_t<decltype(*seq)>;
    const V* x = contiguous_as(call, values, floats ? DType::f64 : DType::i64).template as<V>();
    for_each(call, total, kPieceElements / 16,
             work::Search<V>{seq, x, order, length, per_row, right, places.as<int64_t>()});
  });
  copy(call, call.result(), places);
  return ok_status();
}

Status bucketize(KernelCall& call) {
  return search(call, call.tensor("boundaries"), call.tensor("self"), nullptr, call.flag("right"));
}

Status searchsorted(KernelCall& call) {
  bool right = call.flag("right") || (call.has("side") && call.text("side") == "right");
  const Tensor* sorter = call.has("sorter") ? &call.tensor("sorter") : nullptr;
  return search(call, call.tensor("sorted_sequence"), call.tensor("self"), sorter, right);
}

// `t` sorted, NaN last: contiguous, with one axis.
Result<Tensor> in_order(KernelCall& call, const Tensor& t) {
  const Tensor line = make_tensor(t.data, t.dtype, std::array{t.elements()});
  const Tensor out = workspace(call, t.dtype, line.sizes()), places = workspace(call, DType::i64, line.sizes());
  const ParamValue first = param_of(Scalar::integer(0)), up = param_of(Scalar::boolean(false));
  SG_TRY(call_op(call, "aten.sort.default", {{"self", param_of(line)}, {"dim", first}, {"descending", up}},
                 {out, places}));
  return out;
}

Status isin(KernelCall& call) {
  const Tensor &elements = call.tensor("elements"), &tests = call.tensor("test_elements");
  const bool floats = is_floating(elements.dtype) || is_floating(tests.dtype);
  const DType dtype = floats ? DType::f64 : DType::i64;
  SG_ASSIGN(const Tensor sorted, in_order(call, contiguous_as(call, tests, dtype)));
  const Tensor given = contiguous_as(call, elements, dtype);
  const Tensor found = workspace(call, DType::boolean, elements.sizes());
  auto run = [&]<class V>() {
    for_each(call, elements.elements(), kPieceElements / 16,
             work::IsIn<V>{given.as<V>(), sorted.as<V>(), sorted.elements(), call.flag("invert"), found.as<uint8_t>()});
  };
  if (floats) run.template operator()<double>();
  else run.template operator()<int64_t>();
  copy(call, call.result(), found);
  return ok_status();
}

Status one_hot(KernelCall& call) {
  Tensor self = contiguous_as(call, call.tensor("self"), DType::i64);
  const auto* x = self.as<int64_t>();
  int64_t n = self.elements(), classes = call.integer("num_classes");
  if (classes == -1) {
    for (int64_t i = 0; i < n; ++i) classes = std::max(classes, std::min(x[i], int64_t{1} << 40) + 1);
    classes = std::max<int64_t>(classes, 0);
    std::vector<int64_t> shape(self.sizes().begin(), self.sizes().end());
    shape.push_back(classes);
    SG_TRY(result_of_shape(call, 0, shape));
  }
  IndexCheck check;
  for (int64_t i = 0; i < n; ++i) check.hold(x[i], classes, i);
  SG_TRY(check.status(call, x, classes));
  Tensor marks = call.scratch().tensor(DType::i64, call.result().sizes());
  fill(call, marks, Scalar::integer(0));
  for (int64_t i = 0; i < n; ++i) marks.as<int64_t>()[i * classes + x[i]] = 1;
  copy(call, call.result(), marks);
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.nonzero.default", nonzero},
    {"aten.masked_select.default", masked_select},
    {"aten.masked_scatter.default", masked_scatter},
    {"aten.masked_scatter_backward.default", masked_scatter_backward},
    {"aten._unique2.default", unique},
    {"aten.unique_consecutive.default", unique_consecutive},
    {"aten.unique_dim.default", unique_dim},
    {"aten.bucketize.Tensor", bucketize},
    {"aten.searchsorted.Tensor", searchsorted},
    {"aten.isin.Tensor_Tensor", isin},
    {"aten.one_hot.default", one_hot},
};

}  // namespace

std::span<const KernelRow> search_kernels() { return kRows; }

}  // namespace sg::cpu
