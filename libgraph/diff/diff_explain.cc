#include "libgraph/diff/diff_explain.h"

#include <algorithm>

#include "libgraph/diff/diff_same.h"
#include "libgraph/modules/module_ranges.h"

namespace sg {

ExplainState::ExplainState(const Job& a, const Job& b, const ProgramDiff& program, GraphDiff* diff)
    : jobs_{&a, &b}, program_(program), diff_(*diff), told_(diff->edits.size()) {
  for (int s = 0; s < 2; ++s) edit_of_[s].assign(side(s).node_count(), kNone);
  for (uint32_t e = 0; e < diff_.edits.size(); ++e) {
    if (diff_.edits[e].a != kNone) edit_of_[0][diff_.edits[e].a] = e;
    if (diff_.edits[e].b != kNone) edit_of_[1][diff_.edits[e].b] = e;
  }
}

std::string_view ExplainState::module(int s, uint32_t n) const {
  StrId m = node(s, n).module;
  return m ? graph(s).pool().strings[m] : std::string_view();
}

std::string ExplainState::blocks(int s, const std::vector<uint32_t>& nodes) const {
  std::vector<std::string_view> names;
  for (uint32_t n : nodes) names.push_back(module(s, n));
  return blocks_of(names);
}

std::string ExplainState::op_counts(int s, const std::vector<uint32_t>& nodes) const {
  std::map<std::string, size_t> counts;
  for (uint32_t n : nodes) {
    std::string name(graph(s).op_name(side(s).nodes[n]));
    size_t begin = name.find('.') + 1;
    ++counts[name.substr(begin, name.find('.', begin) - begin)];
  }
  std::vector<std::pair<std::string, size_t>> list(counts.begin(), counts.end());
  std::stable_sort(list.begin(), list.end(), [](const auto& p, const auto& q) { return p.second > q.second; });
  std::string out;
  for (const auto& [name, count] : list) out += (out.empty() ? "" : ", ") + std::to_string(count) + " " + name;
  return out;
}

bool ExplainState::passes_on(int s, uint32_t n) const { return sg::passes_on(side(s), diff_.tensors[s], n); }

Explanation& ExplainState::add(ExplanationKind kind, std::string text, std::string where, size_t before, size_t after,
                               std::map<std::string, size_t> facts) {
  diff_.explanations.push_back({kind, std::move(text), std::move(where), before, after, std::move(facts)});
  return diff_.explanations.back();
}

bool ExplainState::take(int s, uint32_t n, uint32_t explanation) {
  if (!is_open(s, n)) return false;
  edit(s, n)->explanation = explanation;
  return true;
}

size_t ExplainState::tell(uint32_t x, uint32_t explanation, const ChangeTest& test) {
  if (!is_open(0, x)) return 0;
  const std::vector<Difference>& changes = edit(0, x)->changes;
  std::vector<uint32_t>& told = told_[edit_of_[0][x]];
  told.resize(changes.size(), kNone);
  size_t count = 0;
  for (size_t i = 0; i < changes.size(); ++i)
    if (told[i] == kNone && test(changes[i])) told[i] = explanation, ++count;
  return count;
}

std::vector<const Difference*> ExplainState::untold(uint32_t x) const {
  std::vector<const Difference*> out;
  if (is_free(0, x) || !is_open(0, x)) return out;
  const std::vector<Difference>& changes = edit(0, x)->changes;
  const std::vector<uint32_t>& told = told_[edit_of_[0][x]];
  for (size_t i = 0; i < changes.size(); ++i)
    if (told.empty() || told[i] == kNone) out.push_back(&changes[i]);
  return out;
}

bool ExplainState::has_untold(uint32_t x, const ChangeTest& test) const {
  std::vector<const Difference*> list = untold(x);
  return std::any_of(list.begin(), list.end(), [&](const Difference* c) { return test(*c); });
}

void ExplainState::settle() {
  auto is_tag = [&](uint32_t id) { return diff_.explanations[id].kind == ExplanationKind::tagged; };
  for (size_t e = 0; e < told_.size(); ++e) {
    const std::vector<uint32_t>& told = told_[e];
    if (told.empty() || diff_.edits[e].explanation != kNone) continue;
    for (size_t i = 0; i < told.size(); ++i) diff_.edits[e].changes[i].told = told[i] != kNone;
    if (std::count(told.begin(), told.end(), kNone)) continue;
    auto first = std::find_if_not(told.begin(), told.end(), is_tag);
    diff_.edits[e].explanation = first == told.end() ? told[0] : *first;
  }
}

// --- equality up to what has been explained ---

bool ExplainState::same_operand(uint32_t v, uint32_t w, uint32_t* why) const {
  uint32_t now = diff_.match.values[0][v], then = diff_.match.values[1][w];
  if (now == w) return true;
  auto told = [&](int s, uint32_t value) {
    return side(s).maker[value] == kNone ? kNone : cause(s, side(s).maker[value]);
  };
  *why = told(1, w) != kNone ? told(1, w) : told(0, v);
  auto because = [&](uint32_t reason) {
    if (*why == kNone) *why = reason;
    return true;
  };
  uint32_t first = now != kNone || diff_.tensors[0].empty()
                       ? kNone
                       : diff_.match.values[0][diff_.tensors[0][v]];  // passed on, and copied
  if ((now != kNone && of[1]->same(now, w)) || (first != kNone && of[1]->same(first, w))) return because(recomputed);
  if (then != kNone && of[0]->same(v, then)) return because(deduplicated);
  if (passed_on != kNone && same_tensor(v, w)) return because(passed_on);
  if (is_put_together(v, *why)) return true;
  uint32_t writer = then == kNone ? kNone : side(0).maker[then];  // A reads what was written into v, B takes the result
  if (writer == kNone || !made_functional.contains(writer) || !of[0]->same(v, side(0).operands(writer)[0]))
    return false;
  *why = edit(0, writer)->explanation;
  return *why != kNone;
}

// Whether a chunked node made v, and `why` explains B's replacement for it as chunked too.
bool ExplainState::is_put_together(uint32_t v, uint32_t why) const {
  uint32_t m = side(0).maker[v];
  if (why == kNone || diff_.explanations[why].kind != ExplanationKind::chunked || m == kNone || !edit(0, m))
    return false;
  uint32_t whole = edit(0, m)->explanation;
  return whole != kNone && diff_.explanations[whole].kind == ExplanationKind::chunked;
}

bool ExplainState::same_tensor(uint32_t v, uint32_t w) const {
  if (diff_.match.values[0][v] == w) return true;
  const std::vector<uint32_t>* tensors = diff_.tensors;
  if (tensors[0].empty()) return false;
  uint32_t p = diff_.match.values[1][tensors[1][w]], q = diff_.match.values[0][tensors[0][v]];
  return (p != kNone && tensors[0][p] == tensors[0][v]) || (q != kNone && tensors[1][q] == tensors[1][w]);
}

bool ExplainState::same_operands(uint32_t x, uint32_t* why) const {
  std::span<const uint32_t> p = side(0).operands(x), q = side(1).operands(partner(0, x));
  bool same = p.size() == q.size();
  for (size_t i = 0; same && i < p.size(); ++i) {
    uint32_t reason = kNone;
    same = same_operand(p[i], q[i], &reason);
    if (reason != kNone) *why = reason;
  }
  return same;
}

bool same_kind_of_types(const ExplainState& state, uint32_t x) {
  const Node &p = state.node(0, x), &q = state.node(1, state.partner(0, x));
  if (p.result_count != q.result_count) return false;
  for (uint32_t r = 0; r < p.result_count; ++r) {
    const Type &t = state.graph(0).type(p.result(r)), &u = state.graph(1).type(q.result(r));
    if (t.kind != u.kind || t.dtype != u.dtype || t.shape.size() != u.shape.size()) return false;
  }
  return true;
}

void explain_edits(const Job& a, const Job& b, const ProgramDiff& program, GraphDiff* diff) {
  ExplainState state(a, b, program, diff);
  NodeCopies of_b(*diff, 1), of_a(*diff, 0);
  state.of[0] = &of_a, state.of[1] = &of_b;
  std::map<uint32_t, uint32_t> merged_users;
  explain_chunks(&state, &merged_users);
  explain_chunks_by_structure(&state);
  explain_merges(&state, &merged_users);
  explain_offloads(&state);
  explain_modules(&state);
  explain_dead(&state);
  explain_passed_on(&state, 0);
  explain_copies(&state, 1);
  explain_copies(&state, 0);
  explain_passed_on(&state, 1);
  explain_other_forms(&state);
  explain_views(&state);
  follow_merges(&state, merged_users);
  explain_what_follows(&state);
  explain_sizes(&state);
  explain_tags(&state);
  state.settle();
}

}  // namespace sg
