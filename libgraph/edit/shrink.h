// Smaller jobs out of one: the same job with some of it taken away. What sg-reduce tries.
//
// Parts     Nodes, outputs, guards and symbols of the programs, and ranks, each kind numbered. With all ranks at once,
//           nodes of one name are one part, and of the others those of one place, so that ranks lose the same; with
//           each rank alone, every program's are its own. All ends of a collective are one part always
//           (shrink_parts.h).
// Cut       Results of a node that is gone and are still wanted become inputs, of their type and under
//           their name; so do sizes that only it could tell. Inputs that nobody reads, and bodies that
//           nobody calls, go too.
// Ranks     Those that stay are numbered anew, groups lose the members that went, and meshes and shardings go: they
//           described the whole.
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
enum class PartScope : uint8_t { all_ranks, each_rank };

size_t count_parts(const Job& job, Part part, PartScope scope);

// Without the parts [begin, end) of that kind.
Job without_parts(const Job& job, Part part, PartScope scope, size_t begin, size_t end);

// Without the ranks [begin, end) of the world.
Job without_ranks(const Job& job, uint32_t begin, uint32_t end);

// Drops families of groups that no node names, and numbers the others anew.
void drop_unused_groups(Job* job);

// Something that a job can do without as a whole: where nodes came from, metadata, notes, unused groups.
struct Simplification {
  std::string_view what;
  void (*apply)(Job* job);
};
std::vector<Simplification> simplifications();

}  // namespace sg
