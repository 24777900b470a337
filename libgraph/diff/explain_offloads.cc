// Values that only one side keeps in host memory: offloads, reloads, their waits, and views of reloaded values.
#include <map>
#include <set>

#include "libgraph/base/human.h"
#include "libgraph/diff/diff_explain.h"
#include "libgraph/dtype.h"

namespace sg {
namespace {

// Bytes of a value if its sizes are numbers; else 0.
int64_t known_bytes(const Graph& graph, ValueId v) {
  const Type& t = graph.type(v);
  if (t.kind != TypeKind::tensor) return 0;
  int64_t bytes = dtype_bytes(t.dtype);
  for (Expr e : t.shape) {
    std::optional<int64_t> n = graph.pool().exprs.constant_value(e);
    if (!n || *n < 0 || __builtin_mul_overflow(bytes, *n, &bytes)) return 0;
  }
  return bytes;
}

struct Offloads {
  std::vector<uint32_t> nodes;
  std::set<uint32_t> values;  // sent to the host
  int64_t bytes = 0;
};

Offloads find(const ExplainState& state, int s) {
  Offloads out;
  const MatchSide& side = state.side(s);
  std::set<uint32_t> moved;  // values that come back from the host
  for (uint32_t n = 0; n < state.count(s); ++n) {
    if (!state.is_free(s, n) || !state.is_open(s, n) || side.operands(n).empty()) continue;
    uint32_t v = side.operands(n)[0];
    bool host = goes_through_host(side, n);
    bool view_of_it = moved.contains(v) && state.has(s, n, kView) && state.of[s]->original(n) != MatchSide::kNone;
    if (!host && !view_of_it) continue;
    out.nodes.push_back(n);
    for (uint32_t r = side.first_result[n]; r < side.first_result[n + 1]; ++r) moved.insert(r);
    if (!host || moved.contains(v) || !out.values.insert(v).second) continue;
    const Arg& sent = state.node(s, n).args[0];
    if (sent.is(ArgKind::value)) out.bytes += known_bytes(state.graph(s), sent.as_value());
  }
  return out;
}

void explain(ExplainState* state, int s) {
  Offloads found = find(*state, s);
  if (found.values.empty()) return;
  uint32_t id = state->next();
  for (uint32_t n : found.nodes) state->take(s, n, id);
  size_t count = found.values.size(), nodes = found.nodes.size();
  std::string text =
      plural(count, "value") + (found.bytes ? ", " + human_bytes(static_cast<double>(found.bytes)) + "," : "");
  text += s == 0 ? count == 1 ? " no longer waits" : " no longer wait" : count == 1 ? " waits" : " wait";
  text += " in the host's memory (" + plural(nodes, "node") + (s == 0 ? " gone)" : " new)");
  state->add(ExplanationKind::offloaded, std::move(text), state->blocks(s, found.nodes), s == 0 ? nodes : 0,
             s == 1 ? nodes : 0, {{"values", count}, {"nodes", nodes}, {"bytes", static_cast<size_t>(found.bytes)}});
}

}  // namespace

void explain_offloads(ExplainState* state) { explain(state, 1), explain(state, 0); }

}  // namespace sg
