#include "libgraph/sim/critical_path.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "libgraph/group_name.h"
#include "libgraph/modules/module_path.h"
#include "libgraph/story/source_text.h"

namespace sg {

std::string_view resource_name(Resource resource) {
  switch (resource) {
    case Resource::compute: return "compute";
    case Resource::communicator: return "communicator";
    case Resource::copy_out: return "copy out";
    case Resource::copy_in: return "copy in";
    case Resource::host: return "host";
  }
  return "?";
}

std::string lane_name(const Job& job, const SimEvent& e) {
  if (e.resource != Resource::communicator) return std::string(resource_name(e.resource));
  return e.group.is_none() ? "group ?" : "group @" + group_name(job, e.group);
}

namespace {

constexpr std::string_view kLaunches = "(host: launches)";

}  // namespace

std::vector<PathRow> critical_rows(const Job& job, const ProgramTimeline& timeline) {
  std::map<std::tuple<Resource, std::string_view, std::string>, PathRow> rows;
  double until = 0;  // gaps on the path are the host launching
  for (uint32_t i : critical_path(timeline)) {
    const SimEvent& e = timeline.events[i];
    if (e.begin_us > until) {
      PathRow& row = rows[{Resource::host, kLaunches, ""}];
      row.resource = Resource::host, row.op = kLaunches;
      row.us += e.begin_us - until, ++row.count;
      row.longest_us = std::max(row.longest_us, e.begin_us - until);
    }
    until = std::max(until, e.end_us);
    const Node& node = e.graph->node(e.node);
    std::string module = node.module.is_none() ? "" : pattern_of_module(job.pool->strings[node.module]);
    PathRow& row = rows[{e.resource, e.graph->op_name(e.node), module}];
    double us = e.end_us - e.begin_us;
    if (row.count++ == 0) {
      row.resource = e.resource;
      row.op = e.graph->op_name(e.node);
      row.module = module;
    }
    if (us > row.longest_us || row.count == 1) row.source = source_of(*e.graph, e.node);
    row.longest_us = std::max(row.longest_us, us);
    row.us += us;
  }
  std::vector<PathRow> out;
  for (auto& [key, row] : rows) out.push_back(std::move(row));
  std::stable_sort(out.begin(), out.end(), [](const PathRow& a, const PathRow& b) {
    return std::tuple(-a.us, a.op, a.module) < std::tuple(-b.us, b.op, b.module);
  });
  return out;
}

}  // namespace sg
