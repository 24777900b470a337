#include "libgraph/story/ranks_text.h"

namespace sg {

std::string ranks_text(const std::vector<uint32_t>& ranks, uint32_t world) {
  if (ranks.empty()) return world == 1 ? "1 rank" : "each of " + std::to_string(world) + " ranks";
  std::string out = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last < i + 2) last = i;  // two neighbours are no range
    out += " " + std::to_string(ranks[i]);
    if (last > i) out += " to " + std::to_string(ranks[last]);
    i = last + 1;
  }
  return out;
}

void write_ranks(const std::vector<uint32_t>& ranks, JsonWriter* json) {
  json->key("ranks").begin_array();
  for (uint32_t rank : ranks) json->natural(rank);
  json->end_array();
}

}  // namespace sg
