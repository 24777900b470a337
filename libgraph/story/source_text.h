// Where the code of a node stands, for people.
#pragma once

#include <string>

#include "libgraph/graph.h"

namespace sg {

std::string source_text(const Pool& pool, SourceId source);        // "lib/model.py:12"; empty when unknown
std::string short_source_text(const Pool& pool, SourceId source);  // "model.py:12"

inline std::string source_of(const Graph& graph, NodeId n) { return source_text(graph.pool(), graph.node(n).source); }

}  // namespace sg
