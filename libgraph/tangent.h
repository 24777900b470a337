// What comes into a step as the gradient of its loss, where the one that recorded the step made it an input: 1, whoever
// runs the step. With several tangents, or none that belongs to a loss alone, nobody knows.
#pragma once

#include <algorithm>

#include "libgraph/dtype.h"
#include "libgraph/graph.h"

namespace sg {

inline bool is_tangent_of_loss(const Graph& graph, const Input& input) {
  if (input.kind != InputKind::tangent) return false;
  const Type& type = graph.type(input.value);
  const bool is_number = type.kind == TypeKind::tensor && is_floating(type.dtype) && type.shape.empty();
  return is_number && std::ranges::count(graph.inputs(), InputKind::tangent, &Input::kind) == 1 &&
         std::ranges::count(graph.outputs(), OutputKind::loss, &Output::kind) == 1;
}

}  // namespace sg
