// The critical path as rows: events of one op in one module, the same in all layers (`layers.*.mlp`), are one row.
// While nothing on the path runs the device waits for what the host launches: a row of its own, so that the rows add up
// to the step.
#pragma once

#include <string>
#include <vector>

#include "libgraph/sim/simulate.h"

namespace sg {

struct PathRow {
  Resource resource = Resource::compute;
  std::string op, module, source;  // source: "file.py:12" of the longest event
  size_t count = 0;
  double us = 0;
  double longest_us = 0;
};

// Longest first.
std::vector<PathRow> critical_rows(const Job& job, const ProgramTimeline& timeline);

std::string_view resource_name(Resource resource);  // "compute", "communicator", ...
// Where an event is drawn: "compute", "group @ep".
std::string lane_name(const Job& job, const SimEvent& event);

}  // namespace sg
