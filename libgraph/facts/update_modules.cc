#include "libgraph/facts/update_modules.h"

#include "libgraph/modules/module_path.h"
#include "libgraph/operands.h"

namespace sg {

UpdateModules::UpdateModules(const Graph& graph) {
  const Pool& pool = graph.pool();
  of_value_.resize(graph.value_id_limit());
  is_gradient_.resize(graph.value_id_limit());
  of_node_.resize(graph.node_id_limit());
  for (const Input& input : graph.inputs())
    if (input.kind == InputKind::parameter && input.fqn)
      modules_.emplace(pool.strings[input.fqn], parent_module(pool.strings[input.fqn]));
  for (const Input& input : graph.inputs())
    if (input.fqn)
      if (auto it = modules_.find(parameter_of(pool.strings[input.fqn])); it != modules_.end())
        of_value_[input.value.index] = it->second;
  for (const Output& output : graph.outputs())
    if (output.kind == OutputKind::gradient && output.value && output.of && !of_value_[output.of.index].empty()) {
      of_value_[output.value.index] = of_value_[output.of.index];
      is_gradient_[output.value.index] = true;
    }
  for (NodeId n : graph.nodes()) {
    const Node& node = graph.node(n);
    if (node.phase != Phase::optimizer || node.module) continue;
    of_node_[n.index] = module_of_operands(graph, n);
    for (uint32_t i = 0; i < node.result_count; ++i) of_value_[node.result(i).index] = of_node_[n.index];
  }
}

std::string_view UpdateModules::parameter_of(std::string_view fqn) const {
  for (std::string_view rest = fqn;; rest.remove_prefix(rest.find('.') + 1)) {
    if (modules_.contains(rest)) return rest;
    if (rest.find('.') == rest.npos) return fqn;
  }
}

std::string_view UpdateModules::module_of_operands(const Graph& graph, NodeId n) const {
  std::string_view found, of_gradient;
  bool several = false, several_gradients = false;
  const auto see = [](std::string_view module, std::string_view* known, bool* differs) {
    if (module.empty()) return;
    *differs = *differs || (!known->empty() && *known != module);
    *known = module;
  };
  for_operands(graph, n, [&](ValueId v) {
    if (is_gradient_[v.index]) see(of_value_[v.index], &of_gradient, &several_gradients);
    else see(of_value_[v.index], &found, &several);
  });
  if (!found.empty()) return several ? std::string_view() : found;
  return several_gradients ? std::string_view() : of_gradient;
}

}  // namespace sg
