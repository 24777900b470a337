#include "libgraph/diff/diff_cost.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "libgraph/base/human.h"

namespace sg {
std::string print_cost_number(double v, CostRow::Unit unit) {
  if (unit == CostRow::Unit::bytes) return human_bytes(v);
  if (unit == CostRow::Unit::flops) return human_flops(v);
  if (unit == CostRow::Unit::microseconds) return human_time(v * 1e-6);
  return std::to_string(static_cast<long long>(v));
}

std::vector<CostRow> compare_times(const StepTime& a, const StepTime& b) {
  std::vector<CostRow> out;
  auto row = [&](std::string key, const std::string& what, double before, double after) {
    if (std::abs(before - after) > 1e-9 * std::max(before, after))  // another order of the same sum is no change
      out.push_back({std::move(key), what + " on " + b.machine, CostRow::Unit::microseconds, before, after});
  };
  row("critical_path_us", "critical path", a.critical_path_us, b.critical_path_us);
  row("exposed_us", "exposed communication", a.exposed_us, b.exposed_us);
  return out;
}

namespace {

struct Costs {
  double nodes = 0, flops = 0, bytes = 0, incomplete = 0, unknown_sizes = 0;
  double inputs = 0, peak = 0, lower_bound = 0;  // of the rank with most
  struct Traffic {
    double count = 0, bytes = 0;
  };
  std::map<std::pair<std::string, std::string>, Traffic> traffic;  // by kind and group
};

Costs costs_of(const Stats& stats, bool of_all_ranks) {
  Costs out;
  for (const ProgramStats& p : stats.programs) {
    const size_t with_it = p.ranks.empty() ? stats.world : p.ranks.size();
    const double ranks = of_all_ranks ? static_cast<double>(with_it) : 1;
    const auto most = [](double* of, int64_t bytes) { *of = std::max(*of, static_cast<double>(bytes)); };
    out.nodes += ranks * static_cast<double>(p.nodes), out.flops += ranks * p.total.flops;
    out.bytes += ranks * p.total.bytes, out.incomplete += ranks * static_cast<double>(p.incomplete);
    out.unknown_sizes += ranks * static_cast<double>(p.memory.unknown_sizes);
    most(&out.inputs, p.memory.inputs_bytes), most(&out.peak, p.memory.peak_bytes);
    most(&out.lower_bound, p.memory.lower_bound_bytes);
    for (const CollectiveSum& c : p.collectives) {
      Costs::Traffic& t = out.traffic[{c.kind, c.group}];
      t.count += ranks * static_cast<double>(c.count), t.bytes += ranks * c.bytes;
    }
  }
  return out;
}

}  // namespace

std::vector<CostRow> compare_costs(const Stats& a, const Stats& b) {
  using U = CostRow::Unit;
  std::vector<CostRow> out;
  if (a.programs.empty() || b.programs.empty()) return out;
  const bool of_all_ranks = a.programs.size() > 1 || b.programs.size() > 1;
  Costs p = costs_of(a, of_all_ranks), q = costs_of(b, of_all_ranks);
  const auto row = [&](std::string key, std::string what, U unit, double before, double after) {
    if (before != after) out.push_back({std::move(key), std::move(what), unit, before, after});
  };
  row("nodes", "nodes", U::count, p.nodes, q.nodes);
  row("flops", "flops", U::flops, p.flops, q.flops);
  row("moved_bytes", "bytes moved", U::bytes, p.bytes, q.bytes);
  for (const auto& [name, t] : q.traffic) p.traffic[name];
  for (const auto& [name, before] : p.traffic) {
    const Costs::Traffic& after = q.traffic[name];
    std::string key = "collective:" + name.first + ":" + name.second, what = name.first + " @" + name.second;
    row(key + ":count", what, U::count, before.count, after.count);
    row(key + ":bytes", what + " bytes", U::bytes, before.bytes, after.bytes);
  }
  row("inputs_bytes", "inputs", U::bytes, p.inputs, q.inputs);
  row("peak_bytes", "peak memory", U::bytes, p.peak, q.peak);
  row("lower_bound_bytes", "most live at once", U::bytes, p.lower_bound, q.lower_bound);
  row("unknown_cost_nodes", "nodes of unknown cost, left out", U::count, p.incomplete, q.incomplete);
  row("unknown_sizes", "unknown sizes, left out", U::count, p.unknown_sizes, q.unknown_sizes);
  return out;
}

}  // namespace sg
