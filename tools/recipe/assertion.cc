#include "tools/recipe/assertion.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "libgraph/base/chars.h"
#include "libgraph/base/human.h"
#include "libgraph/base/nearest.h"
#include "libgraph/base/size_units.h"
#include "libgraph/expr/assume.h"
#include "libgraph/op_pattern.h"
#include "libgraph/sim/simulate.h"
#include "libgraph/story/stat.h"

namespace sg::recipe {
namespace {

enum class Unit : uint8_t { count, bytes, flops, seconds, share };

struct Metric {
  std::string_view name;
  Unit unit;
  double (*of_stats)(const ProgramStats&) = nullptr;
  double (*of_time)(const ProgramTimeline&) = nullptr;
};

constexpr Metric kMetrics[] = {
    {"nodes", Unit::count, [](const ProgramStats& s) { return static_cast<double>(s.nodes); }},
    {"inputs", Unit::count, [](const ProgramStats& s) { return static_cast<double>(s.inputs); }},
    {"outputs", Unit::count, [](const ProgramStats& s) { return static_cast<double>(s.outputs); }},
    {"flops", Unit::flops, [](const ProgramStats& s) { return s.total.flops; }},
    {"peak", Unit::bytes, [](const ProgramStats& s) { return static_cast<double>(s.memory.peak_bytes); }},
    {"lower_bound", Unit::bytes, [](const ProgramStats& s) { return static_cast<double>(s.memory.lower_bound_bytes); }},
    {"input_bytes", Unit::bytes, [](const ProgramStats& s) { return static_cast<double>(s.memory.inputs_bytes); }},
    {"collectives", Unit::count,
     [](const ProgramStats& s) {
       double n = 0;
       for (const CollectiveSum& c : s.collectives) n += static_cast<double>(c.count);
       return n;
     }},
    {"comm_bytes", Unit::bytes,
     [](const ProgramStats& s) {
       double n = 0;
       for (const CollectiveSum& c : s.collectives) n += c.wire_bytes;
       return n;
     }},
    {"step_time", Unit::seconds, nullptr, [](const ProgramTimeline& t) { return t.makespan_us * 1e-6; }},
    {"compute_time", Unit::seconds, nullptr, [](const ProgramTimeline& t) { return t.compute_us * 1e-6; }},
    {"exposed_comm", Unit::share, nullptr,
     [](const ProgramTimeline& t) { return t.makespan_us > 0 ? t.exposed_total_us() / t.makespan_us : 0; }},
    {"host_wait", Unit::share, nullptr,
     [](const ProgramTimeline& t) { return t.makespan_us > 0 ? t.host_us / t.makespan_us : 0; }},
};

const Metric* find_metric(std::string_view name) {
  auto at = std::ranges::find_if(kMetrics, [&](const Metric& m) { return m.name == name; });
  return at == std::end(kMetrics) ? nullptr : &*at;
}

struct Suffix {
  std::string_view text;
  double factor;
  Unit unit;  // its unit; count: also for flops
};
constexpr Suffix kSuffixes[] = {
    // those of bytes: libgraph/base/size_units.h
    {"k", 1e3, Unit::count},     {"M", 1e6, Unit::count},     {"G", 1e9, Unit::count},
    {"T", 1e12, Unit::count},    {"P", 1e15, Unit::count},    {"%", 0.01, Unit::share},
    {"us", 1e-6, Unit::seconds}, {"ms", 1e-3, Unit::seconds}, {"s", 1, Unit::seconds},
};

std::string_view units_of(Unit unit) {
  switch (unit) {
    case Unit::count: return "k, M, G, T";
    case Unit::flops: return "k, M, G, T, P";
    case Unit::bytes: return kSizeUnitNames;
    case Unit::seconds: return "us, ms, s";
    case Unit::share: return "%";
  }
  return "";
}

// Whether a number alone would be a guess: 5 may be meant as milliseconds or as per cent.
bool needs_unit(Unit unit) { return unit == Unit::seconds || unit == Unit::share; }

// None: not a number, or without the unit that it needs, or with one of another kind.
std::optional<double> parse_bound(std::string_view text, Unit wanted) {
  double value = 0;
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || !std::isfinite(value)) return std::nullopt;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty()) return needs_unit(wanted) ? std::nullopt : std::optional(value);
  if (wanted == Unit::bytes) {
    const std::optional<double> factor = bytes_of_unit(unit);
    return factor ? std::optional(value * *factor) : std::nullopt;
  }
  for (const Suffix& s : kSuffixes)
    if (s.text == unit && s.unit == (wanted == Unit::flops ? Unit::count : wanted)) return value * s.factor;
  return std::nullopt;
}

bool holds(double value, Relation relation, double bound) {
  switch (relation) {
    case Relation::less: return value < bound;
    case Relation::at_most: return value <= bound;
    case Relation::equal: return value == bound;
    case Relation::not_equal: return value != bound;
    case Relation::at_least: return value >= bound;
    case Relation::more: return value > bound;
  }
  return false;
}

std::string human(double value, Unit unit) {
  switch (unit) {
    case Unit::count: return human_count(value);
    case Unit::bytes: return human_bytes(value);
    case Unit::flops: return human_flops(value);
    case Unit::seconds: return human_time(value);
    case Unit::share: return human_count(value * 100) + " %";
  }
  return "?";
}

double count_of_op(const ProgramStats& s, std::string_view pattern) {
  double n = 0;
  for (const auto& [op, count] : s.ops)
    if (op_is_called(op, pattern)) n += static_cast<double>(count);
  for (const NestedStats& nested : s.nested)
    for (const auto& [op, count] : nested.ops)
      if (op_is_called(op, pattern)) n += static_cast<double>(count);
  return n;
}

Error malformed(const Word& word, const std::string& message, const std::string& hint) {
  return {ErrorKind::unreadable, message, word.where, hint};
}

}  // namespace

Result<Assertion> parse_assertion(const Word& word) {
  Assertion out;
  out.word = word;
  std::string_view text = trim_spaces(word.text);
  if (text.starts_with("no op=")) {
    out.op = trim_spaces(text.substr(6));
    if (out.op.empty()) return malformed(word, "`no op=` names an op", {});
    return out;
  }
  constexpr std::string_view kExample = "such as `peak < 70GiB`, `op=aten.mm <= 40`, `no op=aten.copy_`";
  size_t at = text.find_first_of("<>!");
  if (at == std::string_view::npos) at = text.find("==");
  if (at == std::string_view::npos)
    return malformed(word, "`" + word.text + "` is not an assertion", std::string(kExample));
  std::string_view left = trim_spaces(text.substr(0, at)), rest = text.substr(at);
  constexpr std::pair<std::string_view, Relation> kRelations[] = {
      {"<=", Relation::at_most},   {">=", Relation::at_least}, {"==", Relation::equal},
      {"!=", Relation::not_equal}, {"<", Relation::less},      {">", Relation::more}};
  auto relation = std::ranges::find_if(kRelations, [&](const auto& r) { return rest.starts_with(r.first); });
  if (relation == std::end(kRelations))
    return malformed(word, "`" + word.text + "` is not an assertion", std::string(kExample));
  out.relation = relation->second;
  std::string_view bound = trim_spaces(rest.substr(relation->first.size()));
  const Metric* metric = find_metric(left);
  if (left.starts_with("op=")) {
    out.op = trim_spaces(left.substr(3));
    if (out.op.empty()) return malformed(word, "`op=` names an op", {});
  } else if (!metric) {
    Nearest nearest(left);
    for (const Metric& m : kMetrics) nearest.offer(m.name);
    return malformed(word, "there is no metric `" + std::string(left) + "`",
                     nearest.hint().empty() ? std::string(kExample) : nearest.hint());
  }
  Unit unit = metric ? metric->unit : Unit::count;
  std::optional<double> number = parse_bound(bound, unit);
  const std::string units = "units here are " + std::string(units_of(unit));
  if (!number && needs_unit(unit) && parse_bound(bound, Unit::count))
    return malformed(word, "`" + std::string(bound) + "` needs a unit", units);
  if (!number) return malformed(word, "`" + std::string(bound) + "` is not a value of this metric", units);
  out.bound = *number;
  out.metric = metric ? metric->name : "";
  out.about_time = metric && metric->of_time != nullptr;
  return out;
}

namespace {

// Why a metric of a program is unknown; empty = it is known.
std::string unknown_part(const Metric& metric, const ProgramStats& stats, const ProgramTimeline* timeline) {
  if (metric.of_time) return timeline->unknown == 0 ? "" : plural(timeline->unknown, "node") + " of unknown cost";
  if (metric.unit == Unit::bytes && stats.memory.unknown_sizes != 0)
    return plural(stats.memory.unknown_sizes, "piece") + " of memory whose size has no number";
  if (metric.unit == Unit::flops && stats.incomplete != 0) return plural(stats.incomplete, "node") + " of unknown cost";
  return "";
}

}  // namespace

Result<std::vector<std::string>> failing_assertions(const Job& job, const std::vector<Assertion>& assertions,
                                                    const std::string& machine) {
  std::vector<std::string> out;
  if (assertions.empty()) return out;
  Result<std::vector<SymbolValues>> values = assume_values(job, infer_ranges(job), Assumption());
  StatOptions options;
  if (values.ok()) options.sizes = sizes_of(job, *values);
  Stats stats = collect_stats(job, options);
  std::optional<Simulation> simulation;
  if (std::ranges::any_of(assertions, [](const Assertion& a) { return a.about_time; })) {
    if (!values.ok()) return values.error();
    SimOptions sim;
    sim.events = false;
    SG_ASSIGN(sim.machine, find_machine(machine));
    SG_ASSIGN(simulation, simulate(job, *values, sim));
  }
  for (const Assertion& a : assertions) {
    const Metric* metric = a.op.empty() ? find_metric(a.metric) : nullptr;
    for (size_t p = 0; p < stats.programs.size(); ++p) {
      if (std::string unknown =
              metric ? unknown_part(*metric, stats.programs[p], simulation ? &simulation->programs[p] : nullptr) : "";
          !unknown.empty()) {
        out.push_back(a.word.text + ": unknown, because of " + unknown);
        break;
      }
      double value = !metric            ? count_of_op(stats.programs[p], a.op)
                     : metric->of_stats ? metric->of_stats(stats.programs[p])
                                        : metric->of_time(simulation->programs[p]);
      if (holds(value, a.relation, a.bound)) continue;
      std::string rank = job.programs[p]->ranks.empty() ? "" : " on rank " + std::to_string(job.programs[p]->ranks[0]);
      out.push_back(a.word.text + ": it is " + human(value, metric ? metric->unit : Unit::count) + rank);
      break;
    }
  }
  return out;
}

}  // namespace sg::recipe
