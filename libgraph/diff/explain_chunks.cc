// Chunks marked by metadata: nodes of B with a chunk index in a region that A does not have.
#include <algorithm>
#include <set>

#include "libgraph/base/human.h"
#include "libgraph/diff/diff_explain.h"

namespace sg {
namespace {

struct Region {
  std::map<int32_t, size_t> of_chunk;  // number of nodes per chunk
  std::set<std::string> originals;
  std::vector<uint32_t> nodes;  // of B, including the boundary
};

// Regions that A has as well: new nodes in them have another reason, such as recomputation.
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
  std::string body =
      originals ? plural(originals, "node") + " became " + std::to_string(copies) : plural(copies, "node");
  state->add(ExplanationKind::chunked,
             "split into " + plural(chunks, "chunk") + part + ": " + body +
                 (boundary ? ", " + plural(boundary, "boundary node") : ""),
             name, originals, region.nodes.size(),
             {{"chunks", chunks}, {"originals", originals}, {"copies", copies}, {"boundary", boundary}});
}

// --- bodies called once per chunk ---

// The body that node y of B calls; null if y is no call.
const Nested* body_of(const ExplainState& state, uint32_t y) {
  if (state.graph(1).op_name(state.side(1).nodes[y]) != "sg.call" || state.node(1, y).args.empty()) return nullptr;
  const Arg& body = state.node(1, y).args[0];
  return body.is(ArgKind::graph) ? state.program(1).nested[body.as_graph().index].get() : nullptr;
}

// `seeds`, and all unmatched, unexplained nodes connected to them.
std::vector<uint32_t> component(const ExplainState& state, int s, const std::vector<uint32_t>& seeds) {
  const MatchSide& side = state.side(s);
  std::vector<uint32_t> out;
  std::set<uint32_t> seen;
  auto add = [&](uint32_t n) {
    if (n != MatchSide::kNone && state.is_free(s, n) && state.is_open(s, n) && seen.insert(n).second) out.push_back(n);
  };
  for (uint32_t n : seeds) add(n);
  for (size_t i = 0; i < out.size(); ++i) {
    for (uint32_t v : side.operands(out[i])) add(side.maker[v]);
    for (uint32_t v = side.first_result[out[i]]; v < side.first_result[out[i] + 1]; ++v)
      for (const MatchUse& use : side.uses(v)) add(use.is_output ? MatchSide::kNone : use.user);
  }
  return out;
}

// Nodes of A that run a contraction of the body on a value that one of `made` takes, and the nodes connected to them.
std::vector<uint32_t> gone_into(const ExplainState& state, const Nested& body, const std::vector<uint32_t>& made) {
  const std::set<uint32_t> takers(made.begin(), made.end());
  auto is_taken = [&](uint32_t v) {
    uint32_t w = state.diff().match.values[0][v];
    if (w == MatchSide::kNone) return false;
    std::span<const MatchUse> uses = state.side(1).uses(w);
    return std::any_of(uses.begin(), uses.end(),
                       [&](const MatchUse& u) { return !u.is_output && takers.contains(u.user); });
  };
  std::set<std::string_view> ops;
  for (NodeId n : body.graph.nodes())
    if (const OpInfo* op = body.graph.op_info(n); op && op->has(kContraction)) ops.insert(op->name);
  std::vector<uint32_t> seeds;
  for (uint32_t x = 0; x < state.count(0); ++x) {
    std::span<const uint32_t> operands = state.side(0).operands(x);
    bool same_op = state.is_free(0, x) && ops.contains(state.graph(0).op_name(state.side(0).nodes[x]));
    if (same_op && std::any_of(operands.begin(), operands.end(), is_taken)) seeds.push_back(x);
  }
  return component(state, 0, seeds);
}

void add_users(const ExplainState& state, int s, uint32_t n, uint32_t id, std::map<uint32_t, uint32_t>* users) {
  const MatchSide& side = state.side(s);
  for (uint32_t v = side.first_result[n]; v < side.first_result[n + 1]; ++v)
    for (const MatchUse& use : side.uses(v)) {
      uint32_t o = !use.is_output || s == 0 ? use.user : state.diff().match.outputs[1][use.user];
      uint32_t x = use.is_output ? kMergedOutput | o : s == 0 ? use.user : state.partner(1, use.user);
      if (x != MatchSide::kNone) users->emplace(x, id);
    }
}

// Nodes that became calls of one body, one per chunk.
bool explain_calls(const Region& region, ExplainState* state, std::map<uint32_t, uint32_t>* users) {
  std::vector<uint32_t> calls;
  for (uint32_t y : region.nodes)
    if (body_of(*state, y) != nullptr) calls.push_back(y);
  if (calls.size() < 2) return false;
  const Nested& body = *body_of(*state, calls[0]);
  std::vector<uint32_t> made = component(*state, 1, region.nodes), gone = gone_into(*state, body, made);
  uint32_t id = state->next();
  for (uint32_t x : gone) state->take(0, x, id), add_users(*state, 0, x, id, users);
  for (uint32_t y : made) state->take(1, y, id), add_users(*state, 1, y, id, users);
  size_t boundary = made.size() - std::min(made.size(), calls.size());
  std::string text = plural(gone.size(), "node") + " became " + std::to_string(calls.size()) + " calls of @" +
                     state->graph(1).pool().strings.str(body.name) + " (" + plural(body.graph.node_count(), "node") +
                     "), " + plural(boundary, "boundary node");
  state->add(ExplanationKind::chunked, std::move(text), state->blocks(0, gone), gone.size(), made.size(),
             {{"chunks", calls.size()}, {"originals", gone.size()}, {"calls", calls.size()}, {"boundary", boundary}});
  return true;
}

}  // namespace

void explain_chunks(ExplainState* state, std::map<uint32_t, uint32_t>* users) {
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
    if (region.of_chunk.size() > 1 && !explain_calls(region, state, users))
      explain_region(name.first, name.second, region, state);
}

}  // namespace sg
