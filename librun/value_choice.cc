#include "librun/value_choice.h"

#include <algorithm>

#include "libgraph/job.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"

namespace sg {
namespace {

bool chooses(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  if (!op || !op->has(kChooses)) return false;
  bool by_float = false;  // or by a mask, which comes from floats
  for_operands(graph, n, [&](ValueId v) {
    const DType dtype = graph.type(v).dtype;
    by_float |= is_floating(dtype) || dtype == DType::boolean;
  });
  return by_float;
}

bool has_choice(const Graph& graph) {
  for (NodeId n : graph.nodes())
    if (chooses(graph, n)) return true;
  return false;
}

}  // namespace

bool chooses_by_value(const Job& job) {
  return std::any_of(job.programs.begin(), job.programs.end(), [](const auto& program) {
    return has_choice(program->graph) || std::any_of(program->nested.begin(), program->nested.end(),
                                                     [](const auto& nested) { return has_choice(nested->graph); });
  });
}

}  // namespace sg
