// What the inputs and outputs of a graph are called, in value files and to people.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "libgraph/graph.h"

namespace sg {

// The FQN; of an input without one the name of its value.
std::string_view port_name(const Graph& graph, const Input& input);

// Of the input that a gradient or a new buffer belongs to, which may be in another graph; empty if unknown.
std::string_view target_name(const Graph& graph, const Output& output);

// "out3": output 3 in value files.
std::string output_key(size_t position);

}  // namespace sg
