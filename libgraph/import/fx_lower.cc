#include "libgraph/import/fx_lower.h"

#include <algorithm>
#include <set>

#include "libgraph/import/fx_module.h"
#include "libgraph/import/fx_parse.h"

namespace sg {
namespace {

// Names for the modules below `root`: outer modules keep their own names first; a name that is taken is qualified by
// the enclosing modules' names.
std::map<uint32_t, std::string> nested_names(const FxFile& file, uint32_t root) {
  std::map<uint32_t, uint32_t> depth{{root, 0}};
  std::vector<std::pair<uint32_t, uint32_t>> order;            // (depth, module)
  for (uint32_t m = root + 1; m < file.modules.size(); ++m) {  // a module precedes those inside it
    auto parent = depth.find(file.modules[m].parent);
    if (parent == depth.end()) continue;
    depth.emplace(m, parent->second + 1);
    order.emplace_back(parent->second + 1, m);
  }
  std::sort(order.begin(), order.end());
  std::map<uint32_t, std::string> names;
  std::set<std::string> taken;
  std::map<std::string, uint32_t> next_suffix;
  for (const auto& [unused, m] : order) {
    std::string name(file.modules[m].name);
    for (uint32_t p = file.modules[m].parent; taken.count(name) != 0 && p != root; p = file.modules[p].parent)
      name = std::string(file.modules[p].name) + "." + name;
    const std::string base = name;
    for (uint32_t& k = next_suffix[base]; !taken.insert(name).second;) name = base + "_" + std::to_string(++k);
    names.emplace(m, name);
  }
  return names;
}

}  // namespace

Result<std::unique_ptr<FxUnit>> read_fx_unit(FxText text) {
  auto unit = std::make_unique<FxUnit>();
  unit->text = std::move(text);
  SG_ASSIGN(unit->file, parse_fx(unit->text));
  for (uint32_t i = 0; i < unit->file.modules.size(); ++i)
    unit->children.try_emplace({unit->file.modules[i].parent, unit->file.modules[i].name}, i);
  return unit;
}

Result<FxProgram> lower_fx_program(const FxLowering& lowering, FxUnit* unit, uint32_t module, uint32_t unit_index) {
  FxProgram program;
  // All comments first: reading them grows the tree that lowering keeps indices into.
  for (size_t i = unit->contexts.size(); i < unit->file.comments.size(); ++i)
    unit->contexts.push_back(
        read_fx_comment(&unit->file, unit->file.comments[i], lowering.job->pool.get(), lowering.gaps));
  FxNestedIndex nested_index;
  nested_index.names = nested_names(unit->file, module);
  SourceGraph graph;
  SG_TRY(FxModuleLowering(lowering, unit, unit_index, &program, &nested_index).read(module, &graph, true));
  program.source.graph = std::move(graph);
  return program;
}

}  // namespace sg
