// Chunks that the metadata tells: nodes of B with a chunk's number in a region that A does not have.
#include <set>

#include "libgraph/diff_explain.h"
#include "libgraph/human.h"

namespace sg {
namespace {

struct Region {
  std::map<int32_t, size_t> of_chunk;   // nodes of each chunk
  std::set<std::string> originals;
  std::vector<uint32_t> nodes;          // of B, boundary included
};

// Regions that A has too: what is new in them is something else, a copy by remat say.
std::set<std::string> known_regions(const ExplainState& state) {
  std::set<std::string> out;
  for (uint32_t x = 0; x < state.count(0); ++x)
    if (StrId region = state.meta(0, x).chunk.region) out.insert(state.graph(0).pool().strings.str(region));
  return out;
}

void explain_region(const std::string& name, int backward, const Region& region, ExplainState* state) {
  size_t copies = 0;
  for (auto [index, count] : region.of_chunk) copies += count;
  uint32_t id = state->next();
  for (uint32_t y : region.nodes) state->take(1, y, id);
  for (const std::string& original : region.originals)
    if (NodeId n = state->graph(0).find_node(original)) state->take(0, state->side(0).position_of[n.index], id);
  size_t originals = region.originals.size(), boundary = region.nodes.size() - copies, chunks = region.of_chunk.size();
  std::string part = backward == 1 ? " (backward)" : backward == 0 ? " (forward)" : "";
  std::string body = originals ? plural(originals, "node") + " became " + std::to_string(copies) : plural(copies, "node");
  state->add(ExplanationKind::chunked,
             "split into " + plural(chunks, "chunk") + part + ": " + body + (boundary ? ", " + plural(boundary, "boundary node") : ""),
             name, originals, region.nodes.size(),
             {{"chunks", chunks}, {"originals", originals}, {"copies", copies}, {"boundary", boundary}});
}

}  // namespace

void explain_chunks(ExplainState* state) {
  std::map<std::pair<std::string, int>, Region> regions;
  const Pool& pool = state->graph(1).pool();
  const std::set<std::string> known = known_regions(*state);
  for (uint32_t y = 0; y < state->count(1); ++y) {
    const ChunkInfo& c = state->meta(1, y).chunk;
    if (!c.region || !state->is_open(1, y) || known.contains(pool.strings.str(c.region))) continue;
    Region& region = regions[{pool.strings.str(c.region), c.is_backward}];
    region.nodes.push_back(y);
    if (c.index < 0) continue;
    ++region.of_chunk[c.index];
    if (c.original) region.originals.insert(pool.strings.str(c.original));
  }
  for (const auto& [name, region] : regions)
    if (region.of_chunk.size() > 1) explain_region(name.first, name.second, region, state);
}

}  // namespace sg
