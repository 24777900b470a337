#include "libgraph/facts/port_names.h"

namespace sg {

std::string_view port_name(const Graph& graph, const Input& input) {
  return input.fqn ? graph.pool().strings[input.fqn] : graph.name(input.value);
}

std::string_view target_name(const Graph& graph, const Output& output) {
  if (output.of) return port_name(graph, graph.inputs()[graph.value(output.of).index]);
  return output.of_name ? graph.pool().strings[output.of_name] : std::string_view();
}

std::string output_key(size_t position) { return "out" + std::to_string(position); }

}  // namespace sg
