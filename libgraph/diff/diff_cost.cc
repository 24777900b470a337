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

std::vector<CostRow> compare_costs(const Stats& a, const Stats& b, bool all) {
  using U = CostRow::Unit;
  std::vector<CostRow> out;
  if (a.programs.empty() || b.programs.empty()) return out;
  const ProgramStats& p = a.programs[0];
  const ProgramStats& q = b.programs[0];
  auto row = [&](std::string key, std::string what, U unit, double before, double after) {
    if (all || before != after) out.push_back({std::move(key), std::move(what), unit, before, after});
  };
  auto whole = [](auto n) { return static_cast<double>(n); };
  row("nodes", "nodes", U::count, whole(p.nodes), whole(q.nodes));
  row("flops", "flops", U::flops, p.total.flops, q.total.flops);
  row("moved_bytes", "bytes moved", U::bytes, p.total.bytes, q.total.bytes);
  struct Traffic {
    double count[2] = {0, 0}, bytes[2] = {0, 0};
  };
  std::map<std::pair<std::string, std::string>, Traffic> traffic;
  for (int s = 0; s < 2; ++s)
    for (const CollectiveSum& c : (s == 0 ? p : q).collectives) {
      Traffic& t = traffic[{c.kind, c.group}];
      t.count[s] += whole(c.count), t.bytes[s] += c.bytes;
    }
  for (const auto& [name, t] : traffic) {
    std::string key = "collective:" + name.first + ":" + name.second, what = name.first + " @" + name.second;
    row(key + ":count", what, U::count, t.count[0], t.count[1]);
    row(key + ":bytes", what + " bytes", U::bytes, t.bytes[0], t.bytes[1]);
  }
  row("inputs_bytes", "inputs", U::bytes, whole(p.memory.inputs_bytes), whole(q.memory.inputs_bytes));
  row("peak_bytes", "peak memory", U::bytes, whole(p.memory.peak_bytes), whole(q.memory.peak_bytes));
  row("lower_bound_bytes", "most live at once", U::bytes, whole(p.memory.lower_bound_bytes),
      whole(q.memory.lower_bound_bytes));
  row("unknown_cost_nodes", "nodes of unknown cost, left out", U::count, whole(p.incomplete), whole(q.incomplete));
  row("unknown_sizes", "unknown sizes, left out", U::count, whole(p.memory.unknown_sizes),
      whole(q.memory.unknown_sizes));
  return out;
}

}  // namespace sg
