// The same change of metadata on many nodes.
#include <algorithm>
#include <map>

#include "libgraph/diff_explain.h"
#include "libgraph/human.h"

namespace sg {
namespace {

constexpr size_t kMany = 4;

template <class Text>
void explain_tags(ExplainState* state, const Text& text_of) {
  auto is_meta = [](const Difference& c) { return c.aspect == Aspect::meta; };
  std::map<std::string, std::vector<uint32_t>> by_change;
  std::vector<std::string> order;
  for (uint32_t x = 0; x < state->count(0); ++x) {
    std::vector<const Difference*> changes = state->untold(x);
    if (!std::all_of(changes.begin(), changes.end(), [&](const Difference* c) { return is_meta(*c); })) continue;
    std::string key;
    for (const Difference* c : changes)
      if (c->what != "of") key += (key.empty() ? "" : "; ") + text_of(*c);
    if (key.empty()) continue;
    auto [at, is_new] = by_change.try_emplace(key);
    if (is_new) order.push_back(key);
    at->second.push_back(x);
  }
  for (const std::string& key : order) {
    const std::vector<uint32_t>& nodes = by_change[key];
    if (nodes.size() < kMany) continue;
    for (uint32_t x : nodes) state->tell(x, state->next(), is_meta);
    state->add(ExplanationKind::tagged, plural(nodes.size(), "node") + ": " + key, state->blocks(0, nodes), nodes.size(), nodes.size(),
               {{"nodes", nodes.size()}});
  }
}

}  // namespace

void explain_tags(ExplainState* state) {
  explain_tags(state, [](const Difference& c) { return c.what + ": " + c.before + " -> " + c.after; });
  explain_tags(state, [](const Difference& c) {                // "binds: - -> binds [u3]": each has its own
    if (c.before != "-" && c.after != "-") return c.what + ": other values";
    return c.what + (c.before == "-" ? ": - -> one of its own" : ": one of its own -> -");
  });
}

}  // namespace sg
