// What sg-view shows: a job as one JSON object of columns, made for a page that has to draw 100,000 nodes at once.
//
// Form      {"schema":"sg-view","version":1,...}; docs/view.md lists the fields. Texts that repeat are indices into
//           "strings". A node is its position in its graph's schedule; inputs count -1, -2, ... as makers of arguments.
// Time      of one step on a simulated machine, in microseconds; left out without a simulation.
// Memory    by one liveness analysis of the main graph, as sg-stat's: bytes that are live while each node runs, and
//           every piece of memory with the nodes it is live between.
// Changes   against an older job, by one diff: the state of each node, and the lines that are gone where they stood.
//           Its peak, time and course of memory stand beside, in 1000 points.
// Cost      linear in the nodes.
#pragma once

#include <string>
#include <vector>

#include "libgraph/diff/diff.h"
#include "libgraph/expr/assume.h"
#include "libgraph/job.h"
#include "libgraph/sim/simulate.h"

namespace sg {

// An older job, its sizes in numbers, and its time.
struct ViewedBefore {
  const Job* job = nullptr;
  const std::vector<SymbolValues>* values = nullptr;
  const Simulation* simulation = nullptr;
};

struct ViewSources {
  const std::vector<SymbolValues>* values = nullptr;  // by program; sizes in numbers
  const Simulation* simulation = nullptr;             // with its events; null = no times
  std::string machine;
  const JobDiff* diff = nullptr;  // its `b` is the job; null = nothing to compare with
  ViewedBefore before;            // of the diff's `a`; without a job nothing is said of it
  std::string name, name_before;  // how the user calls the two
};

std::string view_json(const Job& job, const ViewSources& from);

}  // namespace sg
