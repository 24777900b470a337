// What comes into a step as the gradient of its loss, where the one that recorded the step made it an input: 1, whoever
// runs the step. It is the one tangent that is a number, in a step with one loss. What else comes in as a tangent
// belongs to outputs that are no loss: 0 where nothing outside of the step depends on them, else only the user knows.
#pragma once

#include <algorithm>

#include "libgraph/dtype.h"
#include "libgraph/graph.h"

namespace sg {

inline bool is_tangent_number(const Graph& graph, const Input& input) {
  const Type& type = graph.type(input.value);
  return input.kind == InputKind::tangent && type.kind == TypeKind::tensor && is_floating(type.dtype) &&
         type.shape.empty();
}

inline bool has_tangent_of_loss(const Graph& graph) {
  const auto is_number = [&](const Input& input) { return is_tangent_number(graph, input); };
  return std::ranges::count_if(graph.inputs(), is_number) == 1 &&
         std::ranges::count(graph.outputs(), OutputKind::loss, &Output::kind) == 1;
}

inline bool is_tangent_of_loss(const Graph& graph, const Input& input) {
  return is_tangent_number(graph, input) && has_tangent_of_loss(graph);
}

}  // namespace sg
