// The simulated timeline: lanes, events, critical path.
#include <algorithm>
#include <cmath>
#include <map>

#include "libgraph/sim/critical_path.h"
#include "libgraph/view/view_columns.h"

namespace sg {
namespace {

double rounded(double us) { return std::round(us * 100) / 100; }

}  // namespace

std::vector<double> times_of(const ViewGraph& view, const ProgramTimeline& t) {
  std::vector<double> out(view.nodes.size(), -1);
  for (const SimEvent& e : t.events)
    if (e.graph == view.graph) {
      double& at = out[static_cast<size_t>(view.position_of[e.node.index])];
      at = std::max(at, e.end_us);
    }
  double before = 0;
  for (double& at : out) before = at = std::max(at, before);
  return out;
}

void write_times(JsonWriter* json, const Job& job, const std::vector<ViewGraph>& graphs, const ProgramTimeline& t) {
  std::map<const Graph*, size_t> graph_index;
  for (size_t i = 0; i < graphs.size(); ++i) graph_index[graphs[i].graph] = i;
  std::map<std::string, size_t> lanes;
  std::vector<std::string> names;
  std::vector<size_t> lane;
  for (const SimEvent& e : t.events) {
    auto [at, is_new] = lanes.try_emplace(lane_name(job, e), names.size());
    if (is_new) names.push_back(at->first);
    lane.push_back(at->second);
  }
  std::vector<uint8_t> critical(t.events.size(), 0);
  for (uint32_t e : critical_path(t)) critical[e] = 1;

  json->key("time").begin_object().member("makespan_us", t.makespan_us).member("compute_us", t.compute_us);
  json->member("exposed_us", t.exposed_total_us()).member("unknown", t.unknown);
  json->key("lanes").begin_array();
  for (const std::string& name : names) json->string(name);
  json->end_array();
  auto of = [&](size_t i) -> const SimEvent& { return t.events[i]; };
  write_column(json, "graph", t.events.size(),
               [&](size_t i) { return static_cast<int64_t>(graph_index[of(i).graph]); });
  write_column(json, "node", t.events.size(),
               [&](size_t i) { return graphs[graph_index[of(i).graph]].position_of[of(i).node.index]; });
  write_column(json, "lane", t.events.size(), [&](size_t i) { return static_cast<int64_t>(lane[i]); });
  write_column(json, "critical", t.events.size(), [&](size_t i) { return critical[i]; });
  json->key("begin").begin_array();
  for (const SimEvent& e : t.events) json->floating(rounded(e.begin_us));
  json->end_array().key("end").begin_array();
  for (const SimEvent& e : t.events) json->floating(rounded(e.end_us));
  json->end_array().end_object();
}

}  // namespace sg
