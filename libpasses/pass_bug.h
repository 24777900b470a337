// What a pass has to say when a node that it made is not what it must be: nothing that a user could mend.
#pragma once

#include <string>

#include "libgraph/job.h"

namespace sg {

inline Error pass_bug(const Program& program, const Graph& graph, NodeId n, const std::string& why) {
  return {ErrorKind::internal, place_of(program, graph, n) + ": " + std::string(graph.op_name(n)) + ": " + why};
}

}  // namespace sg
