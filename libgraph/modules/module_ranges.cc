#include "libgraph/modules/module_ranges.h"

#include <algorithm>
#include <map>

#include "libgraph/base/joined.h"
#include "libgraph/modules/module_path.h"

namespace sg {

LayerName layer_name(std::string_view module) {
  const NumberedModule numbered = numbered_module(module);
  if (numbered.number < 0) return {std::string(module), std::nullopt};
  const std::string stack(numbered.stack), inside(numbered.inside);
  return {(stack.empty() ? "*" : stack + ".*") + (inside.empty() ? "" : "." + inside),
          static_cast<uint64_t>(numbered.number)};
}

std::string with_layers(const std::string& pattern, const std::set<uint64_t>& layers) {
  size_t star = pattern.find('*');
  if (layers.empty() || star == std::string::npos) return pattern;
  std::string list;
  for (auto at = layers.begin(); at != layers.end();) {
    uint64_t first = *at, last = first;
    while (++at != layers.end() && *at == last + 1) last = *at;
    if (!list.empty()) list += ",";
    list += std::to_string(first);
    if (last > first) list += (last == first + 1 ? "," : "..") + std::to_string(last);
  }
  if (layers.size() > 1) list = "{" + list + "}";
  return pattern.substr(0, star) + list + pattern.substr(star + 1);
}

std::string blocks_of(const std::vector<std::string_view>& modules) {
  constexpr size_t kMaxBlocks = 6;
  std::vector<std::string> order;
  std::map<std::string, std::set<uint64_t>> layers;
  for (std::string_view module : modules) {
    LayerName name = layer_name(module);
    size_t end = name.layer ? name.pattern.find('*') + 1 : std::min(name.pattern.find('.'), name.pattern.size());
    name.pattern.resize(end);
    if (name.pattern.empty()) continue;
    auto [at, is_new] = layers.try_emplace(name.pattern);
    if (is_new) order.push_back(name.pattern);
    if (name.layer) at->second.insert(*name.layer);
  }
  std::string out = joined(first_of(order, kMaxBlocks), ", ",
                           [&](const std::string& block) { return with_layers(block, layers[block]); });
  if (order.size() > kMaxBlocks) out += ", and " + std::to_string(order.size() - kMaxBlocks) + " more";
  return out;
}

}  // namespace sg
