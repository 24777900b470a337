#include "libgraph/sim/report.h"

#include <algorithm>
#include <cstdio>
#include <span>

#include "libgraph/base/human.h"
#include "libgraph/base/json.h"
#include "libgraph/group_name.h"
#include "libgraph/sim/critical_path.h"
#include "libgraph/sim/measured.h"
#include "libgraph/story/ranks_text.h"
#include "libgraph/story/source_text.h"

namespace sg {
namespace {

std::string fixed(double value, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

std::string percent(double part, double whole) { return whole > 0 ? fixed(100 * part / whole, 1) + " %" : "-"; }

std::string ranks_of(const Job& job, const Simulation& simulation, size_t program) {
  return ranks_text(job.programs[program]->ranks, simulation.world);
}

constexpr size_t kNameWidth = 36;

std::string time_cells(const std::string& name, double us, double whole, size_t width = kNameWidth) {
  return left_cell("  " + name, width) + right_cell(human_time(us * 1e-6), 12) + right_cell(percent(us, whole), 10);
}

void line(std::string* out, const std::string& name, double us, double whole) {
  if (us > 0) *out += time_cells(name, us, whole) + "\n";
}

void print_parts(std::string* out, const ProgramTimeline& t) {
  line(out, "compute", t.compute_us, t.makespan_us);
  for (const auto& [kind, us] : t.exposed_us) line(out, "exposed " + kind, us, t.makespan_us);
  line(out, "waits for copies", t.copy_us, t.makespan_us);
  line(out, "waits for the host", t.host_us, t.makespan_us);
  line(out, "after the last kernel", t.tail_us, t.makespan_us);
}

// As in the text form, which leaves this overload out.
std::string short_op(const std::string& op) {
  constexpr std::string_view kUsual = ".default";
  return op.ends_with(kUsual) ? op.substr(0, op.size() - kUsual.size()) : op;
}

void print_path(std::string* out, const Job& job, const ProgramTimeline& t, size_t limit) {
  const std::vector<PathRow> rows = critical_rows(job, t);
  if (rows.empty() || limit == 0) return;
  const std::span<const PathRow> shown(rows.data(), std::min(rows.size(), limit));
  size_t width = kNameWidth;
  for (const PathRow& r : shown) width = std::max(width, short_op(r.op).size() + 4);
  *out += "critical path: time, share of the step, number of nodes\n";
  for (const PathRow& r : shown)
    *out += time_cells(short_op(r.op), r.us, t.makespan_us, width) + "   x" + std::to_string(r.count) +
            (r.module.empty() ? "" : "  " + r.module) + (r.source.empty() ? "" : "  # " + r.source) + "\n";
  if (rows.size() > limit) *out += "  (" + std::to_string(rows.size() - limit) + " more rows; --rows)\n";
}

void write_times(JsonWriter* json, std::string_view key, const std::map<std::string, double>& times) {
  json->key(key).begin_object();
  for (const auto& [kind, us] : times) json->key(kind).floating(us);
  json->end_object();
}

void write_timeline(JsonWriter* json, const ProgramTimeline& t) {
  json->key("makespan_us").floating(t.makespan_us).key("compute_us").floating(t.compute_us);
  write_times(json, "exposed_us", t.exposed_us);
  json->key("exposed_share").floating(t.makespan_us > 0 ? t.exposed_total_us() / t.makespan_us : 0);
  json->key("copy_us").floating(t.copy_us).key("host_us").floating(t.host_us).key("tail_us").floating(t.tail_us);
  write_times(json, "communication_us", t.communication_us);
  json->key("flops").count(t.flops).key("utilization").floating(t.makespan_us > 0 ? t.compute_us / t.makespan_us : 0);
  json->key("mfu").floating(t.mfu()).key("unknown").natural(t.unknown);
}

void write_path(JsonWriter* json, const Job& job, const ProgramTimeline& t, size_t limit) {
  json->key("critical_path").begin_array();
  std::vector<PathRow> rows = critical_rows(job, t);
  for (size_t i = 0; i < rows.size() && i < limit; ++i) {
    const PathRow& r = rows[i];
    json->begin_object().key("op").string(r.op).key("module").string(r.module).key("source").string(r.source);
    json->key("resource")
        .string(resource_name(r.resource))
        .key("count")
        .natural(r.count)
        .key("us")
        .floating(r.us)
        .end_object();
  }
  json->end_array();
}

// Above all rank, device and process numbers that profilers use.
constexpr size_t kFirstProcess = 1'000'000'000;

// Tracks of a program: compute, host, copies out and in, then one per group.
constexpr size_t kGroupTrack = 5;

size_t track_of(const SimEvent& e) {
  switch (e.resource) {
    case Resource::compute: return 1;
    case Resource::host: return 2;
    case Resource::copy_out: return 3;
    case Resource::copy_in: return 4;
    case Resource::communicator: break;
  }
  return kGroupTrack + (e.group.is_none() ? 0 : e.group.index);
}

void write_track_name(JsonWriter* json, size_t process, std::string_view what, size_t track, const std::string& name) {
  json->begin_object().key("ph").string("M").key("name").string(what).key("pid").natural(process).key("tid").natural(
      track);
  json->key("args").begin_object().key("name").string(name).end_object().end_object();
}

void write_event(JsonWriter* json, size_t process, const SimEvent& e, double origin_us) {
  json->begin_object().key("ph").string("X").key("name").string(e.graph->op_name(e.node)).key("pid").natural(process);
  json->key("tid")
      .natural(track_of(e))
      .key("ts")
      .floating(origin_us + e.begin_us)
      .key("dur")
      .floating(e.end_us - e.begin_us);
  json->key("args").begin_object().key("node").string(e.graph->label(e.node));
  const Node& node = e.graph->node(e.node);
  if (!node.module.is_none()) json->key("module").string(e.graph->pool().strings[node.module]);
  if (std::string source = source_of(*e.graph, e.node); !source.empty()) json->key("source").string(source);
  json->end_object().end_object();
}

}  // namespace

std::string print_simulation(const Job& job, const Machine& machine, const Simulation& simulation, size_t rows) {
  const ProgramTimeline& t = simulation.worst();
  std::string out = machine.name + ": " + human_time(t.makespan_us * 1e-6) + " a step, simulated; " +
                    ranks_of(job, simulation, simulation.slowest) +
                    (simulation.programs.size() > 1 ? ", the slowest" : "") + "\n";
  print_parts(&out, t);
  double seconds = t.makespan_us * 1e-6;
  if (seconds > 0)
    out += "  " + human_flops(t.flops) + ", " + human_flops(t.flops / seconds) + "/s a rank, MFU " +
           percent(t.at_peak_us, t.makespan_us) + "\n";
  for (const auto& [kind, us] : t.communication_us) {
    if (us <= 0) continue;  // groups of one rank
    auto exposed = t.exposed_us.find(kind);
    double hidden = us - (exposed == t.exposed_us.end() ? 0 : exposed->second);
    out += "  " + kind + ": " + human_time(us * 1e-6) + " under way, " + percent(std::max(0.0, hidden), us) +
           " hidden by other work\n";
  }
  if (t.unknown != 0)
    out += "  " + plural(t.unknown, "node") +
           " counted as nothing: a size without a number (--assume), or an unknown op\n";
  print_path(&out, job, t, rows);
  return out;
}

std::string simulation_json(const Job& job, const Machine& machine, const Simulation& simulation, size_t rows,
                            const MeasuredTrace* measured) {
  JsonWriter json;
  json.begin_object().key("schema").string("sg-sim").key("version").natural(1).key("machine").string(machine.name);
  json.key("world").natural(simulation.world);
  write_timeline(&json, simulation.worst());
  write_path(&json, job, simulation.worst(), rows);
  if (measured) {
    json.key("measured");
    write_residuals(&json, measured->step(), simulation.worst());
  }
  json.key("ranks").begin_array();
  for (size_t p = 0; p < simulation.programs.size(); ++p) {
    write_ranks(job.programs[p]->ranks, &json.begin_object());
    write_timeline(&json, simulation.programs[p]);
    json.end_object();
  }
  return json.end_array().end_object().take();
}

std::string simulation_trace(const Job& job, const Simulation& simulation, const MeasuredTrace* beside) {
  JsonWriter json;
  json.begin_object().key("displayTimeUnit").string("ms").key("traceEvents").begin_array();
  if (beside) beside->write_events(&json);
  const double origin = beside ? beside->step().begin_us : 0;
  for (size_t program = 0; program < simulation.programs.size(); ++program) {
    const size_t p = kFirstProcess + program;
    write_track_name(&json, p, "process_name", 0, "simulated: " + ranks_of(job, simulation, program));
    const char* tracks[] = {"compute", "host", "copies to the host", "copies from the host"};
    for (size_t i = 0; i < 4; ++i) write_track_name(&json, p, "thread_name", i + 1, tracks[i]);
    for (size_t g = 0; g < job.groups.size(); ++g)
      write_track_name(&json, p, "thread_name", kGroupTrack + g,
                       "group " + group_name(job, GroupId(static_cast<uint32_t>(g))));
    for (const SimEvent& e : simulation.programs[program].events) write_event(&json, p, e, origin);
  }
  return json.end_array().end_object().take();
}

}  // namespace sg
