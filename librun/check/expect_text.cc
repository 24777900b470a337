#include <algorithm>
#include <cmath>
#include <cstdio>

#include "libgraph/shape_text.h"
#include "librun/check/expect.h"

namespace sg {
namespace {

std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", v);
  return text;
}

std::string full_number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", v);
  return text;
}

std::string pad(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string details(const ExpectRow& row) {
  if (!row.problem.empty()) return row.problem;
  std::string out = "max abs " + pad(number(row.max_abs), 9) + " max rel " + pad(number(row.max_rel), 9);
  if (row.beyond != 0) {
    out += " beyond " + std::to_string(row.beyond) + " of " + std::to_string(row.count) + ", worst at " +
           shape_text(row.where) + ": " + full_number(row.value_there) + ", expected " +
           full_number(row.expected_there);
  } else if (row.rtol != 0 || row.atol != 0) {
    out += " " + number(100 * row.worst) + " % of the tolerance of " + std::string(dtype_name(row.narrowest));
    if (row.max_abs > row.atol && row.rounding > row.atol)
      out += ", widened by the file's own rounding of " + number(row.rounding);
  }
  return out;
}

}  // namespace

std::string expect_text(const ExpectReport& report, size_t max_passed, std::string_view prefix) {
  std::string out;
  size_t width = 0, passed = 0;
  for (const ExpectRow& row : report.rows) width = std::max(width, std::min<size_t>(row.name.size(), 40));
  for (const ExpectRow& row : report.rows) {
    if (row.passed() && passed++ >= max_passed) break;
    out += std::string(prefix) + (row.passed() ? "ok    " : "FAIL  ") + pad(row.name, width) + "  " + details(row);
    if (!row.title.empty() && row.title != row.name) out += "  (" + row.title + ")";
    out += "\n";
  }
  const size_t compared = report.rows.size();
  const auto nan = std::ranges::count_if(report.rows, &ExpectRow::only_nan);
  const std::string all =
      compared == 1 ? "the one compared value is" : "all " + std::to_string(compared) + " compared values are";
  out += std::string(prefix) + (report.passed() ? all + " as expected"
                                                : std::to_string(report.failed) + " of " + std::to_string(compared) +
                                                      " compared values are not as expected");
  if (nan != 0 && static_cast<size_t>(nan) == compared)
    out += ", and " + std::string(kAllNan) + ", which shows nothing (--watch nan names the first)";
  else if (nan != 0)
    out += ", " + std::to_string(nan) + " of them nothing but NaN, which shows nothing (--watch nan names the first)";
  if (const auto noise = std::ranges::count_if(report.rows, &ExpectRow::only_rounding); noise != 0)
    out += ", " + std::to_string(noise) + " of them by a recorded rounding as large as they are, which shows little";
  if (report.without_counterpart != 0)
    out += ", " + std::to_string(report.without_counterpart) + " without a counterpart";
  if (report.not_compared != 0) out += ", " + std::to_string(report.not_compared) + " not in the file";
  out += "\n";
  if (!report.passed() && !report.draws_random.empty())
    out += std::string(prefix) + "hint: %" + report.draws_random +
           " draws random numbers, which are not PyTorch's: values that depend on them differ (capture with dropout 0, "
           "or in "
           "eval mode)\n";
  bool rounds = std::ranges::any_of(report.rows, [](const ExpectRow& r) { return !r.passed() && r.rounding > 0; });
  if (rounds && !report.chooses.empty())
    out += std::string(prefix) + "hint: %" + report.chooses +
           " chooses by values that roundings may change, and then whole rows differ: with --numerics f64 too, which "
           "makes the choices of the graph's own types\n";
  else if (rounds && !report.in_double)
    out +=
        std::string(prefix) + "hint: against the same file, --numerics f64 tells rounding errors from a wrong result\n";
  if (!report.passed() && !report.recorded.empty() && !report.in_double)
    out += std::string(prefix) + "hint: " + report.recorded + " records how far rounding takes such values: --expect " +
           report.recorded + " in place of --compare allows for it, on each of the graphs\n";
  return out;
}

void write_expect(const ExpectReport& report, JsonWriter* out) {
  out->begin_object();
  out->member("passed", report.passed());
  out->member("compared", report.rows.size());
  out->member("failed", report.failed);
  out->member("not_compared", report.not_compared);
  if (report.without_counterpart != 0) out->member("without_counterpart", report.without_counterpart);
  out->key("outputs").begin_array();
  for (const ExpectRow& row : report.rows) {
    out->begin_object();
    out->member("name", row.name).member("title", row.title).member("passed", row.passed());
    if (!row.problem.empty()) out->member("problem", row.problem);
    out->member("narrowest", dtype_name(row.narrowest));
    out->member("rtol", row.rtol).member("atol", row.atol);
    if (row.rounding != 0) out->member("rounding", row.rounding);
    out->member("elements", row.count).member("beyond", row.beyond);
    out->member("max_abs", row.max_abs).member("max_rel", row.max_rel).member("worst", row.worst);
    out->key("where").begin_array();
    for (int64_t i : row.where) out->integer(i);
    out->end_array();
    out->member("value", row.value_there).member("expected", row.expected_there);
    out->end_object();
  }
  out->end_array().end_object();
}

}  // namespace sg
