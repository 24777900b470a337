// Counts of values: histc, bincount.
#include <algorithm>
#include <cmath>

#include "librun/cpu/fill.h"
#include "librun/cpu/kernels.h"
#include "librun/work/search.h"

namespace sg::cpu {
namespace {

Status histc(KernelCall& call) {
  Tensor self = contiguous_as(call, call.tensor("self"), DType::f64);
  int64_t bins = call.integer("bins"), n = self.elements();
  const auto* x = self.as<double>();
  double low = call.number("min"), high = call.number("max");
  if (bins <= 0) return call.fail("a histogram needs at least one bin, not " + std::to_string(bins));
  if (low == high && n > 0) {
    const auto [least, most] = std::minmax_element(x, x + n);  // passes over NaN, but for one at the front
    low = *least, high = *most;
    if (std::any_of(x, x + n, [](double v) { return std::isnan(v); })) low = high = std::nan("");
  }
  if (low == high) low -= 1, high += 1;
  if (!std::isfinite(low) || !std::isfinite(high) || low > high)
    return call.fail("a histogram needs finite bounds in order");
  Tensor counts = call.scratch().tensor(DType::i64, std::array{bins});
  fill(call, counts, Scalar::integer(0));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t bin = work::bin_of(x[i], low, high, bins);
    if (bin >= 0) ++counts.as<int64_t>()[bin];
  }
  copy(call, call.result(), counts);
  return ok_status();
}

Status bincount(KernelCall& call) {
  Tensor self = contiguous_as(call, call.tensor("self"), DType::i64);
  int64_t n = self.elements(), bins = call.integer("minlength");
  const auto* x = self.as<int64_t>();
  constexpr int64_t kMost = int64_t{1} << 40;
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] < 0 || x[i] >= kMost)
      return call.fail("value " + std::to_string(x[i]) + " at position " + std::to_string(i) + " cannot be counted");
    bins = std::max(bins, x[i] + 1);
  }
  if (call.result().is_none()) SG_TRY(call.allocate_result(0, std::array{bins}));
  const Tensor& out = call.result();
  if (out.dim(0) < bins)
    return call.fail("value " + std::to_string(bins - 1) + " is out of range for " + std::to_string(out.dim(0)) +
                     " bins");
  bool weighted = call.has("weights");
  const double* weights = weighted ? contiguous_as(call, call.tensor("weights"), DType::f64).as<double>() : nullptr;
  Tensor sums = call.scratch().tensor(weighted ? DType::f64 : DType::i64, out.sizes());
  fill(call, sums, Scalar::integer(0));
  for (int64_t i = 0; i < n; ++i) {
    if (weighted) sums.as<double>()[x[i]] += weights[i];
    else ++sums.as<int64_t>()[x[i]];
  }
  copy(call, out, sums);
  return ok_status();
}

constexpr KernelRow kRows[] = {
    {"aten.histc.default", histc},
    {"aten.bincount.default", bincount},
};

}  // namespace

std::span<const KernelRow> histogram_kernels() { return kRows; }

}  // namespace sg::cpu
