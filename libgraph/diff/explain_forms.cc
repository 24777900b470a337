// The same computation in another form: in place or not, a reshape under another name, a collective over another group.
#include <algorithm>
#include <map>

#include "libgraph/base/human.h"
#include "libgraph/diff/diff_explain.h"

namespace sg {
namespace {

// "aten.add_.Tensor" -> "aten.add.Tensor"; empty if the op is not an in-place form.
std::string functional_name(std::string_view op) {
  size_t dot = op.rfind('.');
  if (dot == std::string_view::npos || dot == 0 || op[dot - 1] != '_' || op.substr(0, dot).ends_with("__")) return {};
  return std::string(op.substr(0, dot - 1)) + std::string(op.substr(dot));
}

// Ops that are equivalent to the readers of their result.
bool is_respelled(std::string_view before, std::string_view after) {
  static constexpr std::string_view kReshapes[] = {"aten.view.default",    "aten._unsafe_view.default",
                                                   "aten.reshape.default", "aten.view",
                                                   "aten._unsafe_view",    "aten.reshape"};
  auto is_reshape = [](std::string_view op) {
    return std::find(std::begin(kReshapes), std::end(kReshapes), op) != std::end(kReshapes);
  };
  return is_reshape(before) && is_reshape(after);
}

void explain_form(const std::vector<uint32_t>& nodes, ExplanationKind kind, std::string text, ExplainState* state) {
  if (nodes.empty()) return;
  uint32_t id = state->next();
  for (uint32_t x : nodes)
    state->tell(x, id, [](const Difference& c) { return c.aspect == Aspect::op || c.aspect == Aspect::operand; });
  state->add(kind, std::move(text), state->blocks(0, nodes), nodes.size(), nodes.size(), {{"nodes", nodes.size()}});
}

// Collectives that differ only in the group, collected by pairs of groups.
void explain_groups(ExplainState* state) {
  auto is_group = [](const Difference& c) {
    return c.aspect == Aspect::attribute && c.before.starts_with('@') && c.after.starts_with('@');
  };
  std::map<std::pair<std::string, std::string>, std::vector<uint32_t>> by_groups;
  for (uint32_t x = 0; x < state->count(0); ++x) {
    if (state->is_free(0, x) || !state->has(0, x, kCollective) || !state->has_untold(x, is_group)) continue;
    auto is_more = [&](const Difference& c) {
      return c.aspect == Aspect::op || (c.aspect == Aspect::attribute && !is_group(c));
    };
    if (state->has_untold(x, is_more)) continue;
    for (const Difference* c : state->untold(x))
      if (is_group(*c)) by_groups[{c->before, c->after}].push_back(x);
  }
  for (const auto& [groups, nodes] : by_groups) {
    for (uint32_t x : nodes) state->tell(x, state->next(), is_group);
    state->add(ExplanationKind::regrouped,
               plural(nodes.size(), "collective") + " on " + groups.second + " instead of " + groups.first + " (" +
                   state->op_counts(0, nodes) + ")",
               state->blocks(0, nodes), nodes.size(), nodes.size(), {{"nodes", nodes.size()}});
  }
}

}  // namespace

// Nodes with another op, unchanged literals, and operands that are equal or explained.
void explain_other_forms(ExplainState* state) {
  std::vector<uint32_t> to_functional, to_in_place, respelled;
  for (uint32_t x = 0; x < state->count(0); ++x) {
    std::vector<const Difference*> changes = state->untold(x);
    if (changes.empty() || changes[0]->aspect != Aspect::op) continue;
    uint32_t cause = MatchSide::kNone;
    if (std::any_of(changes.begin(), changes.end(), [](const Difference* c) { return c->aspect == Aspect::attribute; }))
      continue;
    if (state->has_untold(x, is_operand) && !state->same_operands(x, &cause)) continue;
    const std::string &before = changes[0]->before, &after = changes[0]->after;
    if (functional_name(before) == after && !state->side(0).operands(x).empty()) to_functional.push_back(x);
    if (functional_name(after) == before) to_in_place.push_back(x);
    if (is_respelled(before, after)) respelled.push_back(x);
  }
  state->made_functional.insert(to_functional.begin(), to_functional.end());
  explain_form(to_functional, ExplanationKind::in_place,
               plural(to_functional.size(), "in-place write") + " made functional", state);
  explain_form(
      to_in_place, ExplanationKind::in_place,
      plural(to_in_place.size(), "node") + (to_in_place.size() == 1 ? " now writes in place" : " now write in place"),
      state);
  explain_form(respelled, ExplanationKind::respelled,
               plural(respelled.size(), "reshape") + " under another name (" + state->op_counts(0, respelled) + ")",
               state);
  explain_groups(state);
}

}  // namespace sg
