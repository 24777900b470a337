// Smaller jobs out of one: the same job with some of it taken away. What sg-reduce tries.
//
// Parts     Nodes, outputs, guards and symbols of the programs, each numbered by a list that all programs share: nodes
//           of one name are one part, so that ranks lose the same; the others go by their place.
// Cut       Results of a node that is gone and are still wanted become inputs, of their type and under
//           their name; so do sizes that only it could tell. Inputs that nobody reads, and bodies that
//           nobody calls, go too.
// Not safe  A smaller job computes something else, and may break a rule of the verifier: who takes parts away looks.
// Cost      A copy of the job each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/job.h"

namespace sg {

enum class Part : uint8_t { node, output, guard, symbol };

size_t count_parts(const Job& job, Part part);

// Without the parts [begin, end) of that kind.
Job without_parts(const Job& job, Part part, size_t begin, size_t end);

// Something that a job can do without as a whole: where nodes came from, metadata, notes, unused symbols and groups.
struct Simplification {
  std::string_view what;
  void (*apply)(Job* job);
};
std::vector<Simplification> simplifications();

}  // namespace sg
