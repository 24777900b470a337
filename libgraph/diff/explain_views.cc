// Views taken in other steps: of the same memory with the same shape, strides and offset (a permute for two transposes,
// one view for two), and the steps in between, removed or added.
#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/diff/diff_explain.h"
#include "libgraph/diff/diff_same.h"

namespace sg {
namespace {

bool is_way(const Difference& c) {
  return c.aspect == Aspect::op || c.aspect == Aspect::attribute || c.aspect == Aspect::operand || c.what == "of";
}

bool is_same_view(const ExplainState& state, uint32_t x) {
  if (!state.has_untold(x, [](const Difference& c) { return is_way(c) && c.what != "of"; })) return false;
  if (state.has_untold(x, [](const Difference& c) { return c.aspect == Aspect::type; })) return false;
  uint32_t v = view_root(state.side(0), x), w = view_root(state.side(1), state.partner(0, x));
  return v != MatchSide::kNone && w != MatchSide::kNone && state.same_tensor(v, w);
}

// Unmatched views whose users have all been explained.
std::vector<uint32_t> steps_between(const ExplainState& state, int s, std::vector<uint8_t>* told) {
  std::vector<uint32_t> out;
  const MatchSide& side = state.side(s);
  for (uint32_t n = state.count(s); n-- > 0;) {
    if (!state.is_free(s, n) || !state.is_open(s, n) || view_root(side, n) == MatchSide::kNone) continue;
    size_t uses = 0;
    bool all = true;
    for (uint32_t v = side.first_result[n]; v < side.first_result[n + 1]; ++v)
      for (const MatchUse& use : side.uses(v)) all = all && !use.is_output && (*told)[use.user], ++uses;
    if (all && uses > 0) (*told)[n] = 1, out.push_back(n);
  }
  return out;
}

}  // namespace

void explain_views(ExplainState* state) {
  std::vector<uint8_t> told[2] = {std::vector<uint8_t>(state->count(0)), std::vector<uint8_t>(state->count(1))};
  std::vector<uint32_t> views;
  for (uint32_t x = 0; x < state->count(0); ++x)
    if (!state->is_free(0, x) && is_same_view(*state, x))
      views.push_back(x), told[0][x] = told[1][state->partner(0, x)] = 1;
  if (views.empty()) return;
  uint32_t id = state->next();
  for (uint32_t x : views) state->tell(x, id, is_way);
  std::string text = plural(views.size(), "view") +
                     (views.size() == 1 ? " of the same memory is" : " of the same memory are") + " taken another way";
  size_t steps[2] = {0, 0};
  for (int s = 0; s < 2; ++s) {
    std::vector<uint32_t> nodes = steps_between(*state, s, &told[s]);
    for (uint32_t n : nodes) state->take(s, n, id);
    steps[s] = nodes.size();
    if (steps[s])
      text += (s == 0     ? "; "
               : steps[0] ? ", "
                          : "; ") +
              plural(steps[s], "step") + " in between " + (s == 0 ? "gone" : "new");
  }
  state->add(ExplanationKind::respelled, std::move(text), state->blocks(0, views), views.size() + steps[0],
             views.size() + steps[1], {{"views", views.size()}, {"removed", steps[0]}, {"added", steps[1]}});
}

}  // namespace sg
