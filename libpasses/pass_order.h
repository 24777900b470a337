// The order of passes: which should come before which, and whether a job shows that one comes too late.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libpasses/pipeline.h"

namespace sg {

// One line for each stage that comes after a pass it should precede (PassInfo::precedes), which ran earlier in the
// job's history or in `stages`. A historical run that left nothing in the graph does not count. Lines for stages before
// `first` are omitted.
std::vector<std::string> order_warnings(const Job& job, std::span<const Stage> stages, size_t first = 0);

// For PassInfo::has_left_traces: whether a node of the job is marked so.
template <class IsMark>
bool has_mark(const Job& job, IsMark is_mark) {
  for (const auto& program : job.programs)
    for (NodeId n : program->graph.nodes())
      if (is_mark(program->graph.meta(n))) return true;
  return false;
}

}  // namespace sg
