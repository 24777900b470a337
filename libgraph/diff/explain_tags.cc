// The same metadata change on many nodes.
#include <algorithm>
#include <map>

#include "libgraph/base/human.h"
#include "libgraph/diff/diff_explain.h"

namespace sg {
namespace {

constexpr size_t kManyTags = 4;

using TextOf = std::string (*)(const Difference&);

// "recompute must_save", of a difference in `recompute` one of whose sides is that or "must_save".
std::string named(const std::string& what, const std::string& value) {
  return value == what || value.starts_with(what + " ") ? value : what + " " + value;
}

// "must_save" of "recompute must_save".
std::string unnamed(const std::string& what, const std::string& value) {
  return value.starts_with(what + " ") ? value.substr(what.size() + 1) : value;
}

std::string exactly(const Difference& c) {
  if (c.before == "-") return "now " + named(c.what, c.after);
  if (c.after == "-") return "no longer " + named(c.what, c.before);
  return c.what + ": " + unnamed(c.what, c.before) + " -> " + unnamed(c.what, c.after);
}

std::string roughly(const Difference& c) {  // "now binds [u3]": values differ per node
  if (c.before != "-" && c.after != "-") return c.what + ": other values";
  return (c.before == "-" ? "now " : "no longer ") + c.what + ", each one of its own";
}

bool is_quiet(const Difference* c) {
  return c->aspect == Aspect::order || c->aspect == Aspect::name || c->aspect == Aspect::loc;
}

// The unexplained changes of a node, if apart from its place, name and source line all are metadata: as one text, or
// one text per change.
std::vector<std::string> keys_of(const ExplainState& state, uint32_t x, TextOf text_of, bool each) {
  std::vector<const Difference*> changes = state.untold(x);
  std::erase_if(changes, is_quiet);
  std::vector<std::string> out;
  if (!std::all_of(changes.begin(), changes.end(), [](const Difference* c) { return c->aspect == Aspect::meta; }))
    return out;
  for (const Difference* c : changes) {
    if (c->what == "of") continue;
    if (each || out.empty()) out.push_back(text_of(*c));
    else out[0] += "; " + text_of(*c);
  }
  return out;
}

void explain_tags(ExplainState* state, TextOf text_of, bool each) {
  std::map<std::string, std::vector<uint32_t>> by_change;
  std::vector<std::string> order;
  for (uint32_t x = 0; x < state->count(0); ++x)
    for (std::string& key : keys_of(*state, x, text_of, each)) {
      auto [at, is_new] = by_change.try_emplace(key);
      if (is_new) order.push_back(std::move(key));
      at->second.push_back(x);
    }
  for (const std::string& key : order) {
    const std::vector<uint32_t>& nodes = by_change[key];
    if (nodes.size() < kManyTags) continue;
    auto is_told = [&](const Difference& c) { return c.aspect == Aspect::meta && (!each || text_of(c) == key); };
    for (uint32_t x : nodes) state->tell(x, state->next(), is_told);
    state->add(ExplanationKind::tagged, plural(nodes.size(), "node") + ": " + key, state->blocks(0, nodes),
               nodes.size(), nodes.size(), {{"nodes", nodes.size()}});
  }
}

}  // namespace

void explain_tags(ExplainState* state) {
  for (bool each : {false, true}) explain_tags(state, exactly, each), explain_tags(state, roughly, each);
}

}  // namespace sg
