// The graph in the forms of other programs. Each is one text; all are linear in the nodes.
#pragma once

#include <string>

#include "libgraph/job.h"
#include "libgraph/view/view_data.h"

namespace sg {

// Graphviz: a cluster a module, solid edges for values. Of the first program.
std::string view_dot(const Job& job);

// The input of Model Explorer: every program and nested graph as a graph, modules as namespaces, the text's metadata as
// attributes.
std::string view_model_explorer(const Job& job);

// A picture of the slowest program's step: lanes over time, and the memory that is live. REQUIRES: `from.simulation`
std::string view_svg(const Job& job, const ViewSources& from);

}  // namespace sg
