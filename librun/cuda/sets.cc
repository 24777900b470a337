// Distinct values, and their counts. The host waits for their number, or for the bounds of what is counted. Only
// complex and empty tensors are copied, because the host computes them.
#include <algorithm>
#include <array>
#include <cmath>

#include "librun/cpu/inner_call.h"
#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/index.h"
#include "librun/work/run.h"
#include "librun/work/search.h"
#include "librun/work/shapes.h"

namespace sg::cuda {
namespace {

constexpr int64_t kMostBins = int64_t{1} << 40;

// --- runs of equal values ---

// Slices along the first axis in a type for comparing: doubles, or integers.
Tensor compared(KernelCall& call, const Tensor& t) {
  return in_rows_as(call, t, is_floating(t.dtype) ? DType::f64 : DType::i64);
}

// Where runs of equal slices begin, in the given order or in memory order.
Result<Tensor> first_of_runs(KernelCall& call, const Tensor& values, int64_t count, const int64_t* order) {
  const int64_t size = count == 0 ? 0 : values.elements() / count;
  const Tensor begins = backend_of(call).scratch(DType::boolean, std::array{count});
  auto mark = [&]<class V>() {
    for_each(call, count, 1, work::BeginsRun<V>{values.as<V>(), order, size, begins.as<uint8_t>()});
  };
  if (values.dtype == DType::f64) mark.template operator()<double>();
  else mark.template operator()<int64_t>();
  return places_of(call, begins);
}

// Results 1 and 2 of both ops: the run of each of `count` slices, and the lengths of the runs.
Status give_runs(KernelCall& call, const Tensor& first, int64_t count, std::span<const int64_t> shape,
                 const int64_t* order) {
  constexpr int64_t kNothing[] = {0};
  const bool inverse = is_slice_result(call, "return_inverse", 1), counts = is_slice_result(call, "return_counts", 2);
  const int64_t runs = first.dim(0);
  SG_TRY(result_of_shape(call, 1, inverse ? shape : kNothing));
  SG_TRY(result_of_shape(call, 2, std::array{counts ? runs : int64_t{0}}));
  if (inverse) {
    const Tensor run = backend_of(call).scratch(DType::i64, shape);
    for_each(call, count, 1, work::RunOf{first.as<int64_t>(), order, runs, run.as<int64_t>()});
    backend_of(call).copy(call.result(1), run);
  }
  if (counts) {
    const Tensor length = backend_of(call).scratch(DType::i64, std::array{runs});
    for_each(call, runs, 1, work::RunLength{first.as<int64_t>(), runs, count, length.as<int64_t>()});
    backend_of(call).copy(call.result(2), length);
  }
  return ok_status();
}

Status pick(KernelCall& call, const Tensor& from, int64_t axis, const Tensor& at, const Tensor& to) {
  return cpu::call_op(
      call, "aten.index_select.default",
      {{"self", cpu::param_of(from)}, {"dim", cpu::param_of(Scalar::integer(axis))}, {"index", cpu::param_of(at)}},
      {to});
}

Status unique(KernelCall& call) {
  const Tensor& given = call.tensor("self");
  if (is_complex(given.dtype)) return run_by_host(call);
  const int64_t n = given.elements();
  const Tensor rows = in_rows(call, given), line = make_tensor(rows.data, rows.dtype, std::array{n});
  const Tensor order = backend_of(call).scratch(DType::i64, std::array{n});
  sort_line(call, line, {}, order);
  SG_ASSIGN(const Tensor first, first_of_runs(call, compared(call, line), n, order.as<int64_t>()));
  SG_TRY(result_of_shape(call, 0, first.sizes()));
  const Tensor places = backend_of(call).scratch(DType::i64, first.sizes());
  SG_TRY(pick(call, order, 0, first, places));
  SG_TRY(pick(call, line, 0, places, call.result(0)));
  return give_runs(call, first, n, given.sizes(), order.as<int64_t>());
}

// For elements, or for slices along an axis.
Status unique_consecutive(KernelCall& call) {
  const Tensor& given = call.tensor("self");
  if (is_complex(given.dtype) || given.elements() == 0) return run_by_host(call);
  const bool flat = !call.has("dim");
  const int axis = flat ? 0 : wrap_axis(call.integer("dim"), given.rank);
  Tensor self = given;
  if (flat) {
    const Tensor rows = in_rows(call, given);
    self = make_tensor(rows.data, rows.dtype, std::array{given.elements()});
  }
  const int64_t n = self.dim(axis);
  SG_ASSIGN(const Tensor first, first_of_runs(call, compared(call, swap_axes(self, 0, axis)), n, nullptr));
  std::vector<int64_t> shape(self.sizes().begin(), self.sizes().end());
  shape[static_cast<size_t>(axis)] = first.dim(0);
  SG_TRY(result_of_shape(call, 0, shape));
  SG_TRY(pick(call, self, axis, first, call.result(0)));
  const std::array line = {n};
  return give_runs(call, first, n, flat ? given.sizes() : std::span<const int64_t>(line), nullptr);
}

// --- counts of values ---

template <class T>
Result<T> number_at(KernelCall& call, const Tensor& line, int64_t place) {
  T number{};
  SG_TRY(backend_of(call).download(reinterpret_cast<std::byte*>(&number), line.data + place * int64_t{sizeof number},
                                   sizeof number));
  return number;
}

Status bincount(KernelCall& call) {
  const Tensor x = in_rows_as(call, call.tensor("self"), DType::i64);
  const int64_t n = x.elements();
  int64_t bins = call.integer("minlength");
  const Tensor sorted = backend_of(call).scratch(DType::i64, std::array{n});
  if (n > 0) {
    sort_line(call, x, sorted, {});
    SG_ASSIGN(const int64_t least, number_at<int64_t>(call, sorted, 0));
    SG_ASSIGN(const int64_t most, number_at<int64_t>(call, sorted, n - 1));
    if (least < 0 || most >= kMostBins)
      return call.fail("value " + std::to_string(least < 0 ? least : most) + " cannot be counted");
    bins = std::max(bins, most + 1);
  }
  if (call.result().is_none()) SG_TRY(call.allocate_result(0, std::array{bins}));
  const Tensor& out = call.result();
  if (out.dim(0) < bins)
    return call.fail("value " + std::to_string(bins - 1) + " is out of range for " + std::to_string(out.dim(0)) +
                     " bins");
  if (!call.has("weights")) {
    const Tensor counts = backend_of(call).scratch(DType::i64, out.sizes());
    for_each(call, out.dim(0), 1, work::CountEqual{sorted.as<int64_t>(), n, counts.as<int64_t>()});
    backend_of(call).copy(out, counts);
    return ok_status();
  }
  backend_of(call).fill(out, Scalar::integer(0));
  if (n == 0) return ok_status();
  const Tensor weights = in_rows_as(call, call.tensor("weights"), out.dtype);
  return cpu::call_op(call, "aten.index_add_.default",
                      {{"self", cpu::param_of(out)},
                       {"dim", cpu::param_of(Scalar::integer(0))},
                       {"index", cpu::param_of(x)},
                       {"source", cpu::param_of(weights)},
                       {"alpha", cpu::param_of(Scalar::integer(1))}},
                      {out});
}

// The smallest or the largest of all elements.
Result<double> extreme(KernelCall& call, std::string_view op, const Tensor& of) {
  const Tensor found = backend_of(call).scratch(DType::f64, {});
  SG_TRY(cpu::call_op(call, op, {{"self", cpu::param_of(of)}}, {found}));
  return number_at<double>(call, found, 0);
}

Status histc(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  const int64_t bins = call.result().elements();
  if (bins <= 0) return call.fail("a histogram needs at least one bin, not " + std::to_string(bins));
  double low = call.number("min"), high = call.number("max");
  if (low == high && self.elements() > 0) {
    SG_ASSIGN(low, extreme(call, "aten.min.default", self));
    SG_ASSIGN(high, extreme(call, "aten.max.default", self));
  }
  if (low == high) low -= 1, high += 1;
  if (!std::isfinite(low) || !std::isfinite(high) || low > high)
    return call.fail("a histogram needs finite bounds in order");
  const HistogramArgs args{Device::view(self), Device::view(call.result()), low, high};
  device_of(call).launch("count_bins", bins, args);
  return ok_status();
}

Status one_hot(KernelCall& call) {
  const int64_t classes = call.integer("num_classes");
  if (classes < 0) return run_by_host(call);  // a data-dependent number, which does not occur in graphs
  const Tensor at = in_rows_as(call, call.tensor("self"), DType::i64);
  const Tensor marks = backend_of(call).scratch(DType::i64, call.result().sizes());
  for_each(call, at.elements(), 1, work::OneHot{at.as<int64_t>(), marks.as<int64_t>(), classes, report_of(call)});
  backend_of(call).copy(call.result(), marks);
  return ok_status();
}

constexpr KernelRow kSetRows[] = {
    {"aten._unique2.default", unique},
    {"aten.unique_consecutive.default", unique_consecutive},
    {"aten.unique_dim.default", run_by_host},
    {"aten.bincount.default", bincount},
    {"aten.histc.default", histc},
    {"aten.one_hot.default", one_hot},
};

}  // namespace

std::span<const KernelRow> set_kernels() { return kSetRows; }

}  // namespace sg::cuda
