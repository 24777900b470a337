#include "tools/run/run_report.h"

#include <algorithm>
#include <cstdio>

#include "libgraph/base/human.h"
#include "libgraph/base/json.h"
#include "libgraph/base/median.h"
#include "librun/check/expect.h"
#include "librun/values/data_name.h"
#include "tools/cli/cli_write.h"

namespace sg::cli {
namespace {

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

std::string bytes_text(int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

// The rank that needs the most memory.
const RankReport* largest(const SessionReport& report) {
  auto it =
      std::ranges::max_element(report.ranks, {}, [](const RankReport& r) { return r.arena_bytes + r.pool_bytes; });
  return it == report.ranks.end() ? nullptr : &*it;
}

int64_t tokens_of(const SessionReport& report) {
  int64_t total = 0;
  for (const RankReport& r : report.ranks) total += r.tokens;
  return total;
}

// "%x = aten.add.Tensor (layers.0.mlp; model.py:12), against %y: values"
std::string difference_text(const RunDifference& d) {
  std::string where = d.module + (d.module.empty() || d.place.empty() ? "" : "; ") + d.place;
  return "%" + d.name + " = " + d.op + (where.empty() ? "" : " (" + where + ")") +
         (d.original == d.name ? "" : ", against %" + d.original) + ": " + d.what;
}

// "1.4291", or over several steps "1.4291 -> 1.2034".
std::string steps_text(const std::vector<double>& steps) {
  auto text = [](double number) { return std::isnan(number) ? std::string("nan") : format("%.7g", number); };
  return (steps.size() > 1 ? text(steps.front()) + " -> " : "") + text(steps.back());
}

// "loss 1.4291 -> 1.2034", or of a step without one loss "out0 1.4291 -> 1.2034, out1 0.6931 -> 0.6705".
std::string losses_text(const RankReport& r) {
  constexpr size_t kMost = 8;
  auto is_lost = [](const std::vector<double>& steps) {
    return std::ranges::any_of(steps, [](double number) { return std::isnan(number); });
  };
  std::string out;
  bool any_lost = is_lost(r.losses);
  if (!r.losses.empty()) out = "loss " + steps_text(r.losses);
  for (size_t i = 0; i < r.numbers.size(); ++i) {
    any_lost = any_lost || is_lost(r.numbers[i].steps);
    if (i < kMost) out += (i ? ", " : "") + r.numbers[i].name + " " + steps_text(r.numbers[i].steps);
  }
  if (r.numbers.size() > kMost) out += " and " + std::to_string(r.numbers.size() - kMost) + " more";
  if (out.empty()) return out;
  return out + (any_lost ? "  (--watch nan names the first node that gives one)" : "") + "\n";
}

std::string comparison_text(const ComparisonReport& c) {
  auto part = [](size_t n, const char* what) { return n ? ", " + std::to_string(n) + what : std::string(); };
  std::string out = plural(c.equal, "result") + " equal to the bit" + part(c.copies_equal, " copies equal") +
                    part(c.chunked_equal, " chunks equal together") +
                    part(c.reordered_equal, " equal in another order") +
                    part(c.own_numbers, " positions in a chunk's own order") +
                    part(c.sums_close, c.sums_close == 1 ? " sum of chunks within the tolerance"
                                                         : " sums of chunks within the tolerance") +
                    part(c.without_counterpart, " without a counterpart") + "\n";
  if (c.differences.empty()) return out;
  return out + std::to_string(c.differences.size()) + " differ, first " + difference_text(c.differences[0]) + "\n";
}

// What is said of a rank, in lines, after its name. Of many ranks, neighbours of which the same is said share the
// lines.
template <class Words>
std::string by_rank(const SessionReport& report, bool names_single, const Words& words) {
  constexpr size_t kMany = 8;
  const std::vector<RankReport>& ranks = report.ranks;
  std::string out;
  for (size_t i = 0; i < ranks.size();) {
    const std::string said = words(ranks[i]);
    size_t end = i + 1;
    while (ranks.size() > kMany && end < ranks.size() && words(ranks[end]) == said) ++end;
    std::string name = "rank " + std::to_string(ranks[i].rank) + "  ";
    if (end > i + 1)
      name = "ranks " + std::to_string(ranks[i].rank) + " to " + std::to_string(ranks[end - 1].rank) + "  ";
    if (ranks.size() == 1 && !names_single) name.clear();
    for (size_t at = 0; at < said.size();) {
      const size_t line_end = said.find('\n', at) + 1;
      out += name + said.substr(at, line_end - at);
      at = line_end;
    }
    i = end;
  }
  return out;
}

// How results compare with the first graph's and with what is expected.
std::string verdict_text(const SessionReport& report, const RankReport& r) {
  std::string out;
  if (r.comparison) out += comparison_text(*r.comparison);
  if (const size_t steps = report.step_seconds.size(); r.expected.size() == 1 && steps > 1)
    out += "compared with the last of " + std::to_string(steps) + " steps\n";
  for (size_t step = 0; step < r.expected.size(); ++step) {
    const std::string which = r.expected.size() > 1 ? "step " + std::to_string(report.first_step + step) + "  " : "";
    out += expect_text(r.expected[step].second, report.ranks.size() > 1 ? 1 : 3, which);
  }
  return out;
}

void write_comparison(const ComparisonReport& c, JsonWriter* json) {
  json->key("comparison").begin_object().member("equal", c.equal).member("copies_equal", c.copies_equal);
  json->member("chunked_equal", c.chunked_equal)
      .member("reordered_equal", c.reordered_equal)
      .member("own_numbers", c.own_numbers)
      .member("sums_close", c.sums_close)
      .member("without_counterpart", c.without_counterpart);
  json->key("differences").begin_array();
  for (const RunDifference& d : c.differences) {
    json->begin_object().member("name", d.name).member("original", d.original).member("op", d.op);
    json->member("module", d.module).member("source", d.place).member("what", d.what).end_object();
  }
  json->end_array().end_object();
}

void write_bytes(const RankReport& r, JsonWriter* json) {
  json->member("input_bytes", r.input_bytes).member("arena_bytes", r.arena_bytes);
  json->member("host_bytes", r.host_bytes).member("pool_bytes", r.pool_bytes);
}

void write_numbers(const std::vector<StepNumbers>& numbers, JsonWriter* json) {
  json->key("numbers").begin_array();
  for (const StepNumbers& n : numbers) {
    json->begin_object().member("name", n.name).key("steps").begin_array();
    for (double number : n.steps) json->floating(number);
    json->end_array().end_object();
  }
  json->end_array();
}

std::string memory_text(const SessionReport& report) {
  const RankReport* r = largest(report);
  if (r == nullptr) return {};
  std::string out = "memory  " + bytes_text(r->arena_bytes) + " planned";
  if (r->pool_bytes > 0) out += " + " + bytes_text(r->pool_bytes) + " from the pool";
  if (r->host_bytes > 0) out += " + " + bytes_text(r->host_bytes) + " on the host";
  return out + ", " + bytes_text(r->input_bytes) + " inputs, a rank\n";
}

}  // namespace

std::string run_text(const SessionReport& report) {
  std::string out = by_rank(report, true, losses_text);
  double seconds = median(report.step_seconds);
  out += "step    " + human_time(seconds);
  if (report.step_seconds.size() > 1) out += " (median of " + std::to_string(report.step_seconds.size()) + ")";
  if (int64_t tokens = tokens_of(report); tokens > 0 && seconds > 0)
    out += ", " + format("%.4g", static_cast<double>(tokens) / seconds) + " tokens/s";
  out += "\n" + memory_text(report);
  return out + by_rank(report, false, [&](const RankReport& r) { return verdict_text(report, r); });
}

std::string dry_run_text(const Job& job, const SessionReport& report, int64_t steps) {
  std::string out = "would run " + plural(static_cast<size_t>(steps), "step") + " on " + plural(job.world, "rank");
  std::string memory = memory_text(report);
  return out + (memory.empty() ? "" : "\n" + memory.substr(0, memory.size() - 1));
}

std::string dry_run_json(const SessionReport& report, int64_t steps) {
  JsonWriter json;
  json.begin_object().member("schema", "sg-run-dry").member("version", 1).member("steps", steps);
  json.key("ranks").begin_array();
  for (const RankReport& r : report.ranks) {
    json.begin_object().member("rank", r.rank);
    write_bytes(r, &json);
    json.end_object();
  }
  return json.end_array().end_object().take();
}

std::string run_json(const SessionReport& report) {
  JsonWriter json;
  json.begin_object().member("schema", "sg-run").member("version", 1);
  json.member("passed", report.passed());
  if (!report.passed()) json.member("text", run_text(report));
  json.key("step_seconds").begin_array();
  for (double s : report.step_seconds) json.floating(s);
  json.end_array().member("tokens", tokens_of(report)).key("ranks").begin_array();
  for (const RankReport& r : report.ranks) {
    json.begin_object().member("rank", r.rank).key("losses").begin_array();
    for (double loss : r.losses) json.floating(loss);
    json.end_array();
    if (!r.numbers.empty()) write_numbers(r.numbers, &json);
    write_bytes(r, &json);
    json.key("expected").begin_array();
    for (auto& [file, outcome] : r.expected) write_expect(outcome, &json);
    json.end_array();
    if (!r.explained.empty()) {
      json.key("explained").begin_array();
      for (const std::string& line : r.explained) json.string(line);
      json.end_array();
    }
    if (r.comparison) write_comparison(*r.comparison, &json);
    json.end_object();
  }
  return json.end_array().end_object().take();
}

Result<std::string> stage_profile(const Args& args, const SessionReport& report, OutputSet* files) {
  if (!args.has("profile")) return std::string();
  std::string file = data_file_name(args.text("profile"), report.ranks.empty() ? 0 : report.ranks[0].rank, 0);
  SG_TRY(files->stage(file, report.profile + "\n"));
  return file;
}

}  // namespace sg::cli
