// Nodes added or removed without changing what the step computes: copies, dead nodes, pass-through nodes.
#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/diff/diff_explain.h"
#include "libgraph/diff/diff_same.h"

namespace sg {
namespace {

// A removed node that passed on a tensor other than v: a transpose of the transpose v, for example.
bool passes_on_another(const ExplainState& state, uint32_t n, uint32_t v) {
  const std::vector<uint32_t>& tensors = state.diff().tensors[0];
  return state.is_free(0, n) && state.passes_on(0, n) && tensors[state.side(0).first_result[n]] != tensors[v];
}

bool is_unused(const ExplainState& state, uint32_t x, const std::vector<uint8_t>& is_dead) {
  const MatchSide& a = state.side(0);
  for (uint32_t v = a.first_result[x]; v < a.first_result[x + 1]; ++v)
    for (const MatchUse& use : a.uses(v))
      if (use.is_output || !(is_dead[use.user] || passes_on_another(state, use.user, v))) return false;
  return true;
}

}  // namespace

void explain_dead(ExplainState* state) {
  std::vector<uint8_t> is_dead(state->count(0));
  std::vector<uint32_t> nodes;
  size_t asserts = 0;
  for (uint32_t x = state->count(0); x-- > 0;) {
    bool may_go =
        state->is_free(0, x) && state->is_open(0, x) && (state->has(0, x, kPure) || state->has(0, x, kAssert));
    if (!may_go || !is_unused(*state, x, is_dead)) continue;
    is_dead[x] = 1, nodes.push_back(x), asserts += state->has(0, x, kAssert);
  }
  if (nodes.empty()) return;
  state->dead = state->next();
  for (uint32_t x : nodes) state->take(0, x, state->dead);
  std::string text = plural(nodes.size(), "dead node") + " gone";
  if (asserts) text += ", " + plural(asserts, "assertion") + " and what only they used among them";
  state->add(ExplanationKind::dead, std::move(text), state->blocks(0, nodes), nodes.size(), 0,
             {{"removed", nodes.size()}, {"assertions", asserts}});
}

void explain_passed_on(ExplainState* state, int s) {
  std::vector<uint32_t> nodes;
  for (uint32_t n = 0; n < state->count(s); ++n)
    if (state->is_free(s, n) && state->is_open(s, n) && state->passes_on(s, n)) nodes.push_back(n);
  if (nodes.empty()) return;
  state->passed_on = state->next();
  for (uint32_t n : nodes) state->take(s, n, state->passed_on);
  std::string text = plural(nodes.size(), "node") +
                     (s == 0 ? " gone that only passed their argument on" : " new that only pass their argument on");
  state->add(ExplanationKind::passed_on, text + " (" + state->op_counts(s, nodes) + ")", state->blocks(s, nodes),
             s == 0 ? nodes.size() : 0, s == 1 ? nodes.size() : 0, {{"nodes", nodes.size()}});
}

// s = 1: nodes of B that recompute what another node has; s = 0: removed nodes of A that did.
void explain_copies(ExplainState* state, int s) {
  std::vector<uint32_t> nodes;
  std::set<uint32_t> originals;
  for (uint32_t n = 0; n < state->count(s); ++n) {
    uint32_t root = state->is_open(s, n) ? state->of[s]->original(n) : MatchSide::kNone;
    if (root != MatchSide::kNone) nodes.push_back(n), originals.insert(root);
  }
  if (nodes.empty()) return;
  uint32_t id = (s == 1 ? state->recomputed : state->deduplicated) = state->next();
  for (uint32_t n : nodes) state->take(s, n, id);
  std::string text =
      s == 1 ? plural(originals.size(), "node") + (originals.size() == 1 ? " is" : " are") + " computed again" +
                   (originals.size() == nodes.size() ? "" : " by " + plural(nodes.size(), "node"))
             : plural(nodes.size(), "common subexpression") + " merged into " + plural(originals.size(), "node");
  size_t before = s == 1 ? originals.size() : nodes.size(), after = s == 1 ? nodes.size() : originals.size();
  state->add(s == 1 ? ExplanationKind::recomputed : ExplanationKind::deduplicated, std::move(text),
             state->blocks(s, nodes), before, after, {{"copies", nodes.size()}, {"originals", originals.size()}});
}

}  // namespace sg
