// Reductions of runs of rows whose lengths the data says, and their gradients. In double, a segment a task.
#include <cmath>
#include <limits>
#include <vector>

#include "librun/cpu/kernels.h"
#include "librun/cpu/rows.h"

namespace sg::cpu {
namespace {

enum class Reduction : uint8_t { sum, mean, max, min, prod };

Reduction reduction_of(std::string_view word) {
  return word == "sum"    ? Reduction::sum
         : word == "mean" ? Reduction::mean
         : word == "max"  ? Reduction::max
         : word == "min"  ? Reduction::min
                          : Reduction::prod;
}

// Data as [outer, rows, inner]; segment s of an outer index has the rows [bounds[s], bounds[s + 1]) of it.
struct SegmentRanges {
  int64_t outer = 1, rows = 0, inner = 1, count = 0;
  std::vector<int64_t> bounds;  // [outer, count + 1]

  const int64_t* at(int64_t o) const { return bounds.data() + o * (count + 1); }
};

// The lengths or offsets, which are never trusted.
Status read_segments(KernelCall& call, const Tensor& data, SegmentRanges* out) {
  const bool by_length = call.has("lengths");
  const Tensor said = contiguous_as(call, call.tensor(by_length ? "lengths" : "offsets"), DType::i64);
  const int axis = said.rank - 1;
  for (int d = 0; d < axis; ++d) out->outer *= data.dim(d);
  for (int d = axis + 1; d < data.rank; ++d) out->inner *= data.dim(d);
  out->rows = data.dim(axis);
  out->count = said.dim(axis) - (by_length ? 0 : 1);
  for (int64_t o = 0; o < out->outer; ++o) {
    const int64_t* from = said.as<int64_t>() + o * said.dim(axis);
    int64_t end = by_length ? 0 : from[0];
    out->bounds.push_back(end);
    for (int64_t s = 0; s < out->count; ++s) {
      const int64_t length = by_length ? from[s] : from[s + 1] - from[s];
      if (end < 0 || length < 0 || length > out->rows - end)
        return call.fail("segment " + std::to_string(s) + " does not lie within the " + std::to_string(out->rows) +
                         " rows of the data");
      out->bounds.push_back(end += length);
    }
    // Rows behind the last segment are for a gradient to leave out; the forward is asked whether it wants that.
    const bool may_leave = !by_length || call.op().param_index("unsafe") < 0 || call.flag("unsafe");
    if (!may_leave && end != out->rows)
      return call.fail("the lengths of segments do not sum to the " + std::to_string(out->rows) + " rows of the data");
  }
  return ok_status();
}

double start_of(KernelCall& call, Reduction r) {
  if (call.has("initial")) return call.number("initial");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return r == Reduction::max ? -kInfinity : r == Reduction::min ? kInfinity : r == Reduction::prod ? 1 : 0;
}

double joined(Reduction r, double a, double x) {
  switch (r) {
    case Reduction::max: return std::isnan(x) ? x : std::max(a, x);
    case Reduction::min: return std::isnan(x) ? x : std::min(a, x);
    case Reduction::prod: return a * x;
    default: return a + x;
  }
}

Status segment_reduce(KernelCall& call) {
  if (call.result().elements() == 0) return ok_status();
  const Tensor data = contiguous_as(call, call.tensor("data"), DType::f64);
  SegmentRanges segments;
  SG_TRY(read_segments(call, data, &segments));
  const Reduction r = reduction_of(call.text("reduce"));
  const double start = start_of(call, r);
  const bool has_start = call.has("initial");
  const Tensor out = call.scratch().tensor(DType::f64, call.result().sizes());
  const int64_t inner = segments.inner;
  for_rows(call, segments.outer * segments.count, inner, [&](int64_t unit, int) {
    const int64_t o = unit / segments.count, s = unit % segments.count;
    const int64_t from = segments.at(o)[s], to = segments.at(o)[s + 1];
    double* sums = out.as<double>() + unit * inner;
    std::fill_n(sums, inner, start);
    for (int64_t row = from; row < to; ++row) {
      const double* x = data.as<double>() + (o * segments.rows + row) * inner;
      for (int64_t i = 0; i < inner; ++i) sums[i] = joined(r, sums[i], x[i]);
    }
    if (r != Reduction::mean || (to == from && has_start)) return;
    for (int64_t i = 0; i < inner; ++i) sums[i] /= static_cast<double>(to - from);
  });
  copy(call, call.result(), out);
  return ok_status();
}

// Column i of a segment.
struct Column {
  const double* x;  // of the first row
  double* grad;
  int64_t rows, step;
};

// Equal ones share the gradient of the largest or smallest.
void share_gradient(const Column& c, double output, double grad) {
  int64_t count = 0;
  for (int64_t k = 0; k < c.rows; ++k) count += std::isnan(c.x[k * c.step]) || c.x[k * c.step] == output;
  for (int64_t k = 0; k < c.rows; ++k) {
    const bool has_it = std::isnan(c.x[k * c.step]) || c.x[k * c.step] == output;
    c.grad[k * c.step] = has_it ? grad / static_cast<double>(count) : 0;
  }
}

// The product of the others: by division, where that says it.
void product_gradient(const Column& c, double output, double grad, double start) {
  for (int64_t k = 0; k < c.rows; ++k) {
    const double x = c.x[k * c.step];
    double others = start;
    if (x != 0 && !std::isnan(x)) others = output / x;
    else
      for (int64_t j = 0; j < c.rows; ++j) others *= j == k ? 1 : c.x[j * c.step];
    c.grad[k * c.step] = grad * others;
  }
}

Status segment_reduce_backward(KernelCall& call) {
  if (call.result().elements() == 0) return ok_status();
  const Tensor data = contiguous_as(call, call.tensor("data"), DType::f64),
               output = contiguous_as(call, call.tensor("output"), DType::f64),
               grad = contiguous_as(call, call.tensor("grad"), DType::f64);
  SegmentRanges segments;
  SG_TRY(read_segments(call, data, &segments));
  const Reduction r = reduction_of(call.text("reduce"));
  const double start = start_of(call, Reduction::prod);
  const Tensor out = call.scratch().tensor(DType::f64, data.sizes());
  std::fill_n(out.as<double>(), out.elements(), 0.0);  // of rows that are in no segment
  const int64_t inner = segments.inner;
  for_rows(call, segments.outer * segments.count, inner, [&](int64_t unit, int) {
    const int64_t o = unit / segments.count, s = unit % segments.count, from = segments.at(o)[s];
    for (int64_t i = 0; i < inner; ++i) {
      const int64_t at = (o * segments.rows + from) * inner + i;
      const Column c{data.as<double>() + at, out.as<double>() + at, segments.at(o)[s + 1] - from, inner};
      const double g = grad.as<double>()[unit * inner + i], y = output.as<double>()[unit * inner + i];
      if (r == Reduction::max || r == Reduction::min) share_gradient(c, y, g);
      else if (r == Reduction::prod) product_gradient(c, y, g, start);
      else
        for (int64_t k = 0; k < c.rows; ++k)
          c.grad[k * inner] = r == Reduction::mean ? g / static_cast<double>(c.rows) : g;
    }
  });
  copy(call, call.result(), out);
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.segment_reduce.default", segment_reduce},
    {"aten._segment_reduce_backward.default", segment_reduce_backward},
};

}  // namespace

std::span<const KernelRow> segment_kernels() { return kRows; }

}  // namespace sg::cpu
