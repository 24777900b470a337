// Modules of repeated blocks, put briefly: layers.0 ... layers.31 is "layers.{0..31}".
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sg {

// A module's name with its first number taken out: "layers.*.moe" and 3; no number: the name as it is.
struct LayerName {
  std::string pattern;
  std::optional<uint64_t> layer;
};
LayerName layer_name(std::string_view module);

// "layers.{0..2,5}.moe"; the pattern alone when there are no numbers.
std::string with_layers(const std::string& pattern, const std::set<uint64_t>& layers);

// The blocks that some modules lie in, cut behind the first number, briefly: "tok_embeddings, layers.{0..2}".
std::string blocks_of(const std::vector<std::string_view>& modules);

}  // namespace sg
