#include "libpasses/chunk_regions.h"

#include <unordered_map>

#include "libgraph/dtype.h"
#include "libgraph/module_path.h"

namespace sg {

std::string_view region_root(const ModulePattern& pattern, std::string_view module) {
  for (const ModulePart& part : parts_of_module(module))
    if (pattern.matches(part.path)) return part.path;
  return {};
}

std::vector<ChunkRegion> find_regions(const Graph& graph, const ModulePattern& pattern,
                                      std::vector<uint32_t>* region_of) {
  std::vector<ChunkRegion> regions;
  std::unordered_map<StrId, uint32_t, IdHash> of_module;
  std::unordered_map<std::string, uint32_t> of_root;
  region_of->assign(graph.node_id_limit(), kNoRegion);
  for (NodeId n : graph.nodes()) {
    const StrId module = graph.node(n).module;
    if (module.is_none()) continue;
    auto [known, fresh] = of_module.try_emplace(module, kNoRegion);
    if (fresh) {
      const std::string root(region_root(pattern, graph.pool().strings[module]));
      if (!root.empty()) {
        const auto [at, is_new] = of_root.try_emplace(root, static_cast<uint32_t>(regions.size()));
        if (is_new) {
          ChunkRegion region;
          region.module = root;
          region.parent = parent_module(root);
          regions.push_back(std::move(region));
        }
        known->second = at->second;
      }
    }
    (*region_of)[n.index] = known->second;
  }
  return regions;
}

std::vector<bool> values_from(const Graph& graph, InputKind kind) {
  std::vector<bool> out(graph.value_id_limit(), false);
  for (const Input& input : graph.inputs())
    if (input.kind == kind) out[input.value.index] = true;
  for (NodeId n : graph.nodes()) {
    bool any = false;
    for (const Arg& arg : graph.node(n).args)
      arg.walk([&](const Arg& a) { any = any || (a.is(ArgKind::value) && out[a.as_value().index]); });
    for (uint32_t i = 0; any && i < graph.node(n).result_count; ++i) out[graph.node(n).result(i).index] = true;
  }
  return out;
}

ValueId find_activation(const Graph& graph, uint32_t region, const std::vector<NodeId>& nodes,
                        const std::vector<uint32_t>& region_of, const std::vector<bool>& from_data) {
  ValueId found;
  for (NodeId n : nodes) {
    if (graph.node(n).phase != Phase::forward) continue;
    for (const Arg& arg : graph.node(n).args)
      arg.walk([&](const Arg& a) {
        if (!a.is(ArgKind::value)) return;
        const ValueId v = a.as_value();
        const Type& t = graph.type(v);
        const NodeId def = graph.value(v).def;
        if (t.kind != TypeKind::tensor || t.shape.empty() || !from_data[v.index] ||
            (def && region_of[def.index] == region))
          return;
        const bool better = found.is_none() || (is_floating(t.dtype) && !is_floating(graph.type(found).dtype));
        if (better) found = v;
      });
    if (!found.is_none() && is_floating(graph.type(found).dtype)) return found;
  }
  return found;
}

}  // namespace sg
