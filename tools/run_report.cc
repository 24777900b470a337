#include "tools/run_report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "libgraph/json.h"

namespace sg::cli {
namespace {

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return format(unit == 0 ? "%.0f " : "%.1f ", value) + kUnits[unit];
}

double median(std::vector<double> list) {
  std::ranges::sort(list);
  return list.empty() ? 0 : list[list.size() / 2];
}

// Memory of the rank that needs most.
const RankReport* largest(const SessionReport& report) {
  auto it = std::ranges::max_element(report.ranks, {}, [](const RankReport& r) { return r.arena_bytes + r.pool_bytes; });
  return it == report.ranks.end() ? nullptr : &*it;
}

int64_t tokens_of(const SessionReport& report) {
  int64_t total = 0;
  for (const RankReport& r : report.ranks) total += r.tokens;
  return total;
}

}  // namespace

std::string run_text(const SessionReport& report) {
  std::string out;
  for (const RankReport& r : report.ranks)
    if (!r.losses.empty()) out += "rank " + std::to_string(r.rank) + "  loss " + format("%.7g", r.losses.back()) + "\n";
  double seconds = median(report.step_seconds);
  out += "step    " + format("%.4g ms", seconds * 1e3);
  if (report.step_seconds.size() > 1) out += " (median of " + std::to_string(report.step_seconds.size()) + ")";
  if (int64_t tokens = tokens_of(report); tokens > 0 && seconds > 0)
    out += ", " + format("%.4g", static_cast<double>(tokens) / seconds) + " tokens/s";
  out += "\n";
  if (const RankReport* r = largest(report)) {
    out += "memory  " + bytes_text(r->arena_bytes) + " planned";
    if (r->pool_bytes > 0) out += " + " + bytes_text(r->pool_bytes) + " from the pool";
    out += ", " + bytes_text(r->input_bytes) + " inputs, a rank\n";
  }
  for (const RankReport& r : report.ranks)
    for (auto& [file, outcome] : r.expected)
      out += expect_text(outcome, 3, report.ranks.size() > 1 ? "rank " + std::to_string(r.rank) + "  " : "");
  return out;
}

std::string run_json(const SessionReport& report) {
  JsonWriter json;
  json.begin_object().key("schema").string("sg-run").key("version").integer(1);
  json.key("passed").boolean(report.passed()).key("step_seconds").begin_array();
  for (double s : report.step_seconds) json.floating(s);
  json.end_array().key("tokens").integer(tokens_of(report)).key("ranks").begin_array();
  for (const RankReport& r : report.ranks) {
    json.begin_object().key("rank").natural(r.rank).key("losses").begin_array();
    for (double loss : r.losses) json.floating(loss);
    json.end_array().key("input_bytes").integer(r.input_bytes).key("arena_bytes").integer(r.arena_bytes);
    json.key("pool_bytes").integer(r.pool_bytes).key("expected").begin_array();
    for (auto& [file, outcome] : r.expected) write_expect(outcome, &json);
    json.end_array().end_object();
  }
  return json.end_array().end_object().take();
}

Result<int64_t> parse_bytes(std::string_view text) {
  auto wrong = [&] {
    return Error{ErrorKind::usage, "\"" + std::string(text) + "\" is no size", {}, "write bytes, or a number with KiB, MiB, GiB, KB, MB or GB"};
  };
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0)) return wrong();
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1}, {"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
      {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
  for (auto& [name, factor] : kUnits)
    if (unit == name && number * factor < 0x1p62) return static_cast<int64_t>(std::llround(number * factor));
  return wrong();
}

Result<std::optional<double>> number_option(const Args& args, std::string_view name) {
  if (!args.has(name)) return std::optional<double>();
  std::string text = args.text(name);
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !(number >= 0))
    return Error{ErrorKind::usage, "--" + std::string(name) + " takes a number that is not negative, not \"" + text + "\""};
  return std::optional<double>(number);
}

Status require_all_ranks(const Job& job) {
  for (uint32_t r = 0; r < job.world; ++r)
    if (!job.program_of(r))
      return Error{ErrorKind::cannot_apply, "the job has " + std::to_string(job.world) + " ranks, and rank " + std::to_string(r) + " is not in the file",
                   {}, "import all ranks ('rank{r}/step.json'), or --spmd where one rank's capture stands for all"};
  return ok_status();
}

}  // namespace sg::cli
