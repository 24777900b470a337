// Freezing: hides nodes from passes, so that a pass works only on a part of a step. Used by bisection.
//
// How       A frozen node's op gets a name that no table has ("frozen.aten.mm.default"). So every pass treats it as an
//           unknown op and leaves it alone; everything else about the node stays, the
//           symbols that it defines are recorded, and `thaw` restores the op's name.
// Parts     The nodes of the steps, by name, in the order of the schedule: nodes of the same name are one part, so that
//           ranks keep the same. A wait goes with what it waits for, a body with the node that calls it.
// Legal     A step that a pass changed while some of it was frozen is one that it could have made: less was allowed.
// Cost      Linear; the job is changed in place.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "libgraph/job.h"

namespace sg {

// A node a part, as the first program that has it.
struct StepPart {
  std::string name;    // "%mm_3"
  std::string source;  // "model.py:12"; empty = unknown
};
std::vector<StepPart> step_parts(const Job& job);

// Freezes all but the parts [begin, end). REQUIRES: nothing is frozen
void freeze_all_but(Job* job, size_t begin, size_t end);
void thaw(Job* job);

}  // namespace sg
