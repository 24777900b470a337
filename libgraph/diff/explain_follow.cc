// Changes that follow from copies, merges and removals: operands, outputs, links and names of neighbours.
#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/diff/diff_explain.h"

namespace sg {
namespace {

bool is_name(const Difference& c) { return c.aspect == Aspect::name; }

// Whether a forward node moved to the backward, and differs in nothing but what that entails.
bool was_put_off(const ExplainState& state, uint32_t x) {
  if (state.node(0, x).phase != Phase::forward || state.node(1, state.partner(0, x)).phase != Phase::backward)
    return false;
  return !state.has_untold(x, [](const Difference& c) {
    return c.aspect != Aspect::operand && c.aspect != Aspect::order && c.aspect != Aspect::name &&
           c.aspect != Aspect::meta;
  });
}

// Partners that take a copy instead of the original, or the argument instead of the pass-through node's result; or the
// reverse.
void follow_operands(ExplainState* state) {
  size_t relocated = 0;
  for (uint32_t x = 0; x < state->count(0); ++x) {
    if (state->is_free(0, x) || !state->is_open(0, x)) continue;
    bool other_operands = state->has_untold(x, is_operand), moves = was_put_off(*state, x);
    if (!moves && !other_operands) continue;
    uint32_t cause = moves ? state->recomputed : MatchSide::kNone;
    if ((other_operands && !state->same_operands(x, &cause)) || cause == MatchSide::kNone) continue;
    if (moves) relocated += state->take(0, x, cause);
    else if (state->tell(x, cause, is_operand)) ++state->diff().explanations[cause].facts["followers"];
  }
  if (state->recomputed == MatchSide::kNone) return;
  Explanation& copies = state->diff().explanations[state->recomputed];
  copies.facts["relocated"] = relocated;
  if (relocated) copies.text += "; " + std::to_string(relocated) + " more, used only there, moved to the backward";
}

void follow_outputs(ExplainState* state) {
  for (ItemEdit& item : state->diff().items) {
    if (item.subject != "output" || item.kind != EditKind::changed || item.explanation != MatchSide::kNone ||
        item.changes.size() != 1 || item.changes[0].aspect != Aspect::operand)
      continue;
    ValueId v = state->graph(0).outputs()[item.port].value;
    ValueId w = state->graph(1).outputs()[state->diff().match.outputs[0][item.port]].value;
    uint32_t cause = MatchSide::kNone;
    if (v && w && state->same_operand(state->side(0).value_of[v.index], state->side(1).value_of[w.index], &cause))
      item.explanation = cause;
  }
}

// When two equal nodes become one, the remaining node may carry the name of the other.
void follow_names(ExplainState* state) {
  if (state->deduplicated == MatchSide::kNone) return;
  for (uint32_t x = 0; x < state->count(0); ++x) {
    if (!state->has_untold(x, is_name)) continue;
    NodeId other = state->graph(0).find_node(state->graph(1).label(state->side(1).nodes[state->partner(0, x)]));
    if (!other) continue;
    uint32_t n = state->side(0).position_of[other.index];
    if (state->cause(0, n) == state->deduplicated && state->of[0]->original(n) == x)
      state->tell(x, state->deduplicated, is_name);
  }
}

// Whether results differ in name only where B does not use them: the node that extracted and named them is gone.
// `gone`: A does not use them either.
bool only_unused_names(const ExplainState& state, uint32_t x, bool* gone) {
  const MatchSide &a = state.side(0), &b = state.side(1);
  uint32_t y = state.partner(0, x);
  if (a.result_count(x) < 2 || a.result_count(x) != b.result_count(y)) return false;
  *gone = true;
  for (uint32_t r = 0; r < a.result_count(x); ++r) {
    if (state.graph(0).name(state.node(0, x).result(r)) == state.graph(1).name(state.node(1, y).result(r))) continue;
    if (!b.uses(b.first_result[y] + r).empty()) return false;
    *gone = *gone && a.uses(a.first_result[x] + r).empty();
  }
  return state.graph(0).label(a.nodes[x]) == state.graph(1).label(b.nodes[y]);
}

void follow_unused_results(ExplainState* state) {
  std::vector<uint32_t> nodes;
  for (uint32_t x = 0; x < state->count(0); ++x) {
    bool gone = false;
    if (!state->has_untold(x, is_name) || !only_unused_names(*state, x, &gone)) continue;
    if (gone) nodes.push_back(x);
    else if (state->recomputed != MatchSide::kNone) state->tell(x, state->recomputed, is_name);
  }
  if (nodes.empty()) return;
  uint32_t id = state->dead != MatchSide::kNone ? state->dead : state->next();
  for (uint32_t x : nodes) state->tell(x, id, is_name);
  std::string text = "unused results of " + plural(nodes.size(), "node") + " lost their names";
  if (id == state->next()) {
    state->add(ExplanationKind::dead, text, state->blocks(0, nodes), nodes.size(), nodes.size(),
               {{"unnamed", nodes.size()}});
  } else {
    state->diff().explanations[id].text += "; " + text;
    state->diff().explanations[id].facts["unnamed"] = nodes.size();
  }
}

// Sizes that follow from a chunked region: 2*(u0//2) after it, where u0 was.
void follow_sizes(ExplainState* state) {
  auto is_type = [](const Difference& c) { return c.aspect == Aspect::type; };
  const MatchSide& b = state->side(1);
  std::vector<uint32_t> told(state->count(1), MatchSide::kNone);
  for (uint32_t y = 0; y < state->count(1); ++y) {
    const NodeEdit* edit = state->edit(1, y);
    if (edit && edit->explanation != MatchSide::kNone &&
        state->diff().explanations[edit->explanation].kind == ExplanationKind::chunked)
      told[y] = edit->explanation;
    uint32_t x = state->partner(1, y), cause = MatchSide::kNone;
    if (x == MatchSide::kNone || !state->has_untold(x, is_type) || !same_kind_of_types(*state, x)) continue;
    for (uint32_t v : b.operands(y))
      if (cause == MatchSide::kNone && b.maker[v] != MatchSide::kNone) cause = told[b.maker[v]];
    if (cause == MatchSide::kNone) continue;
    state->tell(x, cause, is_type);
    told[y] = cause;
  }
}

// What made the node that is linked to in B a copy of the partner of the one in A, or the other way round.
uint32_t cause_of_copy(const ExplainState& state, uint32_t linked_in_a, NodeId forward_in_b) {
  const uint32_t partner = state.partner(0, linked_in_a);
  if (partner == MatchSide::kNone || !forward_in_b) return MatchSide::kNone;
  const uint32_t linked = state.side(1).position_of[forward_in_b.index];
  const NodeCopies& copies = *state.of[1];
  if (copies.original(partner) != linked && copies.original(linked) != partner) return MatchSide::kNone;
  const uint32_t cause = state.cause(1, linked);
  return cause != MatchSide::kNone ? cause : state.cause(1, partner);
}

// Partners that compute the same but whose link to a forward node changed because an explanation removed, merged or
// copied that node (the producer's link number may then remain among the free keys).
void follow_links(ExplainState* state) {
  auto is_link = [](const Difference& c) { return c.what == "of" || c.what == "extra"; };
  auto computes_other = [](const Difference& c) {
    return c.aspect == Aspect::op || c.aspect == Aspect::operand || c.aspect == Aspect::attribute ||
           c.aspect == Aspect::type;
  };
  std::set<uint32_t> merged;  // nodes of A that others were merged into
  for (uint32_t n = 0; n < state->count(0); ++n)
    if (state->deduplicated != MatchSide::kNone && state->cause(0, n) == state->deduplicated)
      merged.insert(state->of[0]->original(n));
  for (uint32_t x = 0; x < state->count(0); ++x) {
    NodeId forward = state->node(0, x).forward;
    if (!forward || !state->has_untold(x, is_link) || state->has_untold(x, computes_other)) continue;
    uint32_t f = state->side(0).position_of[forward.index], cause = state->cause(0, f);
    if (cause == MatchSide::kNone && merged.contains(f)) cause = state->deduplicated;
    if (cause == MatchSide::kNone) cause = cause_of_copy(*state, f, state->node(1, state->partner(0, x)).forward);
    if (cause != MatchSide::kNone) state->tell(x, cause, is_link);
  }
}

}  // namespace

void explain_what_follows(ExplainState* state) {
  follow_operands(state);
  follow_outputs(state);
  follow_names(state);
  follow_unused_results(state);
  follow_sizes(state);
  follow_links(state);
}

}  // namespace sg
