// A measured step against a simulated one: the residuals, and a machine fitted to the measurement.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <tuple>

#include "libgraph/base/human.h"
#include "libgraph/base/joined.h"
#include "libgraph/facts/cost.h"
#include "libgraph/sim/measured.h"
#include "libgraph/sim/op_kind.h"

namespace sg {
namespace {

constexpr size_t kUnknownRows = 3;
constexpr int kFitRounds = 12;
constexpr double kMostChange = 1e4;  // of a number, from its initial value

using Times = std::map<std::string, double, std::less<>>;

Times compute_by_kind(const ProgramTimeline& t) {
  Times out;
  for (const SimEvent& e : t.events) {
    double us = e.end_us - e.begin_us;
    if (e.resource == Resource::compute) out[std::string(name_of(op_kind(e.graph->op_info(e.node))))] += us;
  }
  return out;
}

Times under_way_by_kind(const ProgramTimeline& t) {
  Times out(t.communication_us.begin(), t.communication_us.end());
  for (const SimEvent& e : t.events)
    if (e.resource == Resource::copy_out || e.resource == Resource::copy_in) out["copy"] += e.end_us - e.begin_us;
  return out;
}

using Parts = std::map<std::string, MeasuredStep::Part, std::less<>>;

void add_rows(std::vector<Residual>* out, const std::string& what, const Parts& measured, const Times& simulated) {
  size_t first = out->size();
  for (const auto& [kind, part] : measured) {
    auto at = simulated.find(kind);
    out->push_back({what, kind, part.us, at == simulated.end() ? 0 : at->second, part.count});
  }
  for (const auto& [kind, us] : simulated)
    if (!measured.contains(kind) && us > 0) out->push_back({what, kind, 0, us, 0});
  std::stable_sort(out->begin() + static_cast<ptrdiff_t>(first), out->end(),
                   [](const Residual& a, const Residual& b) { return a.measured_us > b.measured_us; });
}

std::string difference(double simulated, double measured) {
  if (measured <= 0 || simulated <= 0) return "-";
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%+.1f %%", 100 * (simulated / measured - 1));
  return buffer;
}

std::string unknown_text(const MeasuredStep& measured) {
  std::vector<std::pair<double, std::string>> rows;
  double total = 0;
  for (const auto& [name, us] : measured.unknown_us) rows.emplace_back(us, name), total += us;
  if (total <= 0) return {};
  std::ranges::sort(rows, std::greater<>());
  std::string out = "  " + human_time(total * 1e-6) +
                    " of no kind: " + joined(first_of(rows, kUnknownRows), ", ", [](const auto& row) {
                      return one_line(row.second) + " " + human_time(row.first * 1e-6);
                    });
  if (rows.size() > kUnknownRows) out += ", " + plural(rows.size() - kUnknownRows, "more name");
  return out + "\n";
}

}  // namespace

std::vector<Residual> residuals(const MeasuredStep& measured, const ProgramTimeline& simulated) {
  std::vector<Residual> out;
  add_rows(&out, "compute", measured.compute, compute_by_kind(simulated));
  Times exposed(simulated.exposed_us.begin(), simulated.exposed_us.end());
  if (simulated.copy_us > 0) exposed["copy"] = simulated.copy_us;
  add_rows(&out, "exposed", measured.exposed, exposed);
  add_rows(&out, "under way", measured.under_way, under_way_by_kind(simulated));
  return out;
}

std::string print_residuals(const MeasuredStep& measured, const ProgramTimeline& simulated) {
  std::string out = "measured by " + measured.source + ": " + human_time(measured.step_us * 1e-6) + " a step (" +
                    plural(measured.steps, "step") + ", " + plural(measured.ranks, "rank") + "); simulated " +
                    human_time(simulated.makespan_us * 1e-6) + ", " +
                    difference(simulated.makespan_us, measured.step_us) + "\n";
  out +=
      left_cell("", 34) + right_cell("measured", 12) + right_cell("simulated", 12) + right_cell("residual", 11) + "\n";
  for (const Residual& r : residuals(measured, simulated)) {
    std::string name = "  " + (r.what == "compute"   ? r.kind
                               : r.what == "exposed" ? "exposed " + r.kind
                                                     : r.kind + " under way");
    out += left_cell(name, 34) + right_cell(r.count > 0 ? human_time(r.measured_us * 1e-6) : "-", 12) +
           right_cell(r.simulated_us > 0 ? human_time(r.simulated_us * 1e-6) : "-", 12) +
           right_cell(difference(r.simulated_us, r.measured_us), 11);
    if (r.count > 0) out += "   x" + std::to_string(std::llround(r.count));
    out += "\n";
  }
  return out + unknown_text(measured);
}

void write_residuals(JsonWriter* json, const MeasuredStep& measured, const ProgramTimeline& simulated) {
  json->begin_object().key("source").string(measured.source).key("steps").natural(measured.steps);
  json->key("ranks").natural(measured.ranks).key("step_us").floating(measured.step_us).key("residuals").begin_array();
  for (const Residual& r : residuals(measured, simulated)) {
    json->begin_object()
        .key("what")
        .string(r.what)
        .key("kind")
        .string(r.kind)
        .key("measured_us")
        .floating(r.measured_us);
    json->key("simulated_us").floating(r.simulated_us).key("count").floating(r.count).end_object();
  }
  json->end_array().key("unknown_us").begin_object();
  for (const auto& [name, us] : measured.unknown_us) json->key(name).floating(us);
  json->end_object().end_object();
}

// --- fitting ---

namespace {

// Machine parameters that are fitted together: rates, which shorten times, and times; and the kinds of ops they
// determine.
struct Knob {
  std::vector<double*> rates, times;
  bool of_compute = true;
  std::vector<std::string> kinds;
  double changed = 1;  // total factor so far
};

std::vector<Knob> knobs_of(Machine* machine, const MeasuredStep& measured) {
  std::vector<Knob> out;
  auto add = [&](Knob knob) {
    const Parts& parts = knob.of_compute ? measured.compute : measured.under_way;
    std::erase_if(knob.kinds, [&](const std::string& k) {
      auto at = parts.find(k);
      return at == parts.end() || at->second.us <= 0;
    });
    if (!knob.kinds.empty()) out.push_back(std::move(knob));
  };
  for (OpKind kind : kOpKinds) {
    Knob knob{{&efficiency_of(machine->efficiency, kind)}, {}, true, {std::string(name_of(kind))}};
    if (kind == OpKind::memory) knob.rates.push_back(&machine->device.vector_tflops);
    add(std::move(knob));
  }
  auto& n = machine->network;
  add({{&n.simple.one_node_gbps, &n.simple.more_nodes_gbps, &n.ll.within_gbps, &n.ll.between_gbps,
        &n.ll.cap_one_node_gbps, &n.ll.cap_two_nodes_gbps, &n.ll.cap_more_nodes_gbps},
       {&n.simple.base_us, &n.simple.hop_us, &n.ll.base_us, &n.ll.hop_one_node_us, &n.ll.hop_within_us,
        &n.ll.hop_between_us},
       false,
       {"all_gather", "reduce_scatter", "all_reduce", "broadcast"}});
  add({{&n.exchange.within_gbps, &n.exchange.between_gbps}, {&n.exchange.base_us}, false, {"all_to_all"}});
  add({{&machine->device.copy_gbps}, {}, false, {"copy"}});
  return out;
}

void turn(Knob* knob, double factor) {
  factor = std::clamp(factor, 1 / (kMostChange * knob->changed), kMostChange / knob->changed);
  knob->changed *= factor;
  for (double* rate : knob->rates) *rate *= factor;
  for (double* time : knob->times) *time /= factor;
}

double total(const Knob& knob, const std::function<double(const std::string&)>& of) {
  double sum = 0;
  for (const std::string& kind : knob.kinds) sum += of(kind);
  return sum;
}

}  // namespace

Result<Machine> fit_machine(const Machine& start, const MeasuredStep& measured, const SimulateOn& simulate) {
  Machine machine = start;
  std::vector<Knob> knobs = knobs_of(&machine, measured);
  for (int round = 0; round < kFitRounds; ++round) {
    SG_ASSIGN(ProgramTimeline now, simulate(machine));
    const Times compute = compute_by_kind(now), way = under_way_by_kind(now);
    for (Knob& knob : knobs) {
      const Parts& parts = knob.of_compute ? measured.compute : measured.under_way;
      const Times& times = knob.of_compute ? compute : way;
      double want = total(knob, [&](const std::string& k) { return parts.find(k)->second.us; });
      double have = total(knob, [&](const std::string& k) {
        auto at = times.find(k);
        return at == times.end() ? 0 : at->second;
      });
      if (have > 0) turn(&knob, have / want);  // else the graph has no such ops
    }
  }
  return machine;
}

}  // namespace sg
