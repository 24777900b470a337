#include "tests/numeric/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "librun/check/precision.h"
#include "librun/element.h"
#include "tests/support/find_tensor.h"

namespace sg::test {
namespace {

// Floats and the parts of complex numbers.
std::vector<double> numbers_of(const StoredTensor& t) {
  std::vector<double> out;
  visit_dtype(t.dtype, [&]<class T>() {
    const auto* at = static_cast<const char*>(t.data);
    for (uint64_t i = 0; i < t.bytes / sizeof(T); ++i, at += sizeof(T)) {
      if constexpr (is_complex_type<T>) {
        T v;
        std::memcpy(&v, at, sizeof(T));
        out.push_back(v.real());
        out.push_back(v.imag());
      } else if constexpr (std::is_floating_point_v<T> || is_half_type<T>) {
        T v;
        std::memcpy(&v, at, sizeof(T));
        out.push_back(static_cast<double>(v));
      }
    }
  });
  return out;
}

bool same_place(double a, double b) {
  if (std::isnan(b)) return std::isnan(a);
  return std::isinf(b) ? a == b : std::isfinite(a);
}

void compare_numbers(const StoredTensor& ours, const StoredTensor& expected, const StoredTensor& oracle,
                     OracleRow* row) {
  const std::vector<double> a = numbers_of(ours), t = numbers_of(expected), o = numbers_of(oracle);
  for (size_t i = 0; i < t.size(); ++i) {
    if (!same_place(a[i], t[i])) {
      row->problem = "NaN or infinity where PyTorch has none, or the other way round, at element " + std::to_string(i);
      return;
    }
    if (!std::isfinite(t[i]) || !std::isfinite(o[i])) continue;
    row->scale = std::max(row->scale, std::fabs(o[i]));
    row->our_error = std::max(row->our_error, std::fabs(a[i] - o[i]));
    row->torch_error = std::max(row->torch_error, std::fabs(t[i] - o[i]));
    row->difference = std::max(row->difference, std::fabs(a[i] - t[i]));
  }
  const double ulp =
      row->scale == 0 ? 0 : std::ldexp(1.0, std::ilogb(row->scale) + 1 - significand_bits(expected.dtype));
  row->allowed = 2 * row->torch_error + ulp;
}

OracleRow compare_one(const StoredTensor& expected, const StoredTensor* ours, const StoredTensor* oracle) {
  OracleRow row;
  row.name = expected.name;
  row.dtype = expected.dtype;
  const bool floats = significand_bits(expected.dtype) != 0;
  if (!is_runnable(expected.dtype)) row.problem = "PyTorch's dtype is none that we compute with";
  else if (ours == nullptr) row.problem = "ours is missing";
  else if (ours->dtype != expected.dtype || ours->shape != expected.shape)
    row.problem = "ours has another dtype or shape";
  else if (!floats && std::memcmp(ours->data, expected.data, expected.bytes) != 0)
    row.problem = "differs from PyTorch's";
  else if (floats && oracle == nullptr) row.problem = "the oracle is missing";
  else if (floats && (oracle->shape != expected.shape || !is_runnable(oracle->dtype) ||
                      is_complex(oracle->dtype) != is_complex(expected.dtype) || significand_bits(oracle->dtype) == 0))
    row.problem = "the oracle has another shape or kind";
  else if (floats) compare_numbers(*ours, expected, *oracle, &row);
  return row;
}

double badness(const OracleRow& row) {
  if (!row.problem.empty()) return INFINITY;
  return row.our_error == 0 ? 0 : row.allowed == 0 ? INFINITY : row.our_error / row.allowed;
}

}  // namespace

std::vector<OracleRow> compare_with_oracle(const TensorFile& ours, const TensorFile& expected,
                                           const TensorFile& oracle) {
  std::vector<OracleRow> rows;
  for (const StoredTensor& t : expected.tensors())
    rows.push_back(compare_one(t, test::find_tensor(ours, t.name), test::find_tensor(oracle, t.name)));
  std::stable_sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return badness(a) > badness(b); });
  return rows;
}

std::string oracle_table(const std::vector<OracleRow>& rows, bool all) {
  constexpr size_t kPassedShown = 5;
  std::string out =
      "      name                      dtype   ours-oracle  torch-oracle       allowed   ours-torch        scale\n";
  size_t failed = 0, shown = 0;
  for (const OracleRow& row : rows) {
    failed += !row.passed();
    if (row.passed() && !all && shown++ >= kPassedShown) continue;
    char line[400];
    if (row.problem.empty())
      std::snprintf(line, sizeof line, "%-5s %-24.60s %6s  %12.4g  %12.4g  %12.4g %12.4g %12.4g\n",
                    row.passed() ? "ok" : "FAIL", row.name.c_str(), std::string(dtype_name(row.dtype)).c_str(),
                    row.our_error, row.torch_error, row.allowed, row.difference, row.scale);
    else
      std::snprintf(line, sizeof line, "FAIL  %-24.60s %6s  %s\n", row.name.c_str(),
                    std::string(dtype_name(row.dtype)).c_str(), row.problem.c_str());
    out += line;
  }
  return out + std::to_string(rows.size()) + " tensors, " + std::to_string(failed) +
         " beyond twice PyTorch's own error\n";
}

}  // namespace sg::test
