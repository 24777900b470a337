// `cond`: both branches run, and each result is selected. A graph has no control flow, so a branch may run although it
// is not taken if it has no effects.
#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

constexpr int kMaxDepth = 32;

// The first op in the body with an effect besides its results; empty if there is none.
std::string effect_of(const Program& program, const Graph& body, int depth) {
  constexpr uint32_t kFelt = kCollective | kWait | kHostSync | kBindsSymbol | kAssert;
  for (NodeId n : body.nodes()) {
    const OpInfo* op = body.op_info(n);
    const std::string name(body.op_name(n));
    if (op == nullptr) return name + ", which is not in the op table";
    if (name == "sg.call" && depth < kMaxDepth) {
      const Arg& callee = body.node(n).args[0];
      if (!callee.is(ArgKind::graph) || callee.as_graph().index >= program.nested.size()) return name;
      if (std::string inner = effect_of(program, program.nested[callee.as_graph().index]->graph, depth + 1);
          !inner.empty())
        return inner;
    } else if ((op->traits & kFelt) != 0 || !(op->has(kPure) || op->has(kRandom))) {
      return name;
    }
  }
  return {};
}

Values run_branch(CompositeCall& c, std::string_view name) {
  const Graph* body = c.body(name);
  if (body == nullptr) return c.fail("argument '" + std::string(name) + "' is not a graph"), Values();
  if (std::string effect = effect_of(c.program(), *body, 0); !effect.empty())
    return c.fail("a branch has an effect, so that only the one that is taken may run: " + effect), Values();
  return c.make_all("sg.call", {c.arg(name), c.sizes("operands")}, body->outputs().size());
}

}  // namespace

void while_loop(CompositeCall& c) {
  c.fail("how often its body runs is known only when it runs, and a graph has no loops");
}

void cond(CompositeCall& c) {
  ValueId pred = c.tensor("pred");
  Values taken = run_branch(c, "true_graph"), other = run_branch(c, "false_graph");
  if (c.failed()) return;
  if (taken.size() != other.size()) return c.fail("its branches differ in the number of their results");
  for (size_t i = 0; i < taken.size(); ++i) {
    const Type &a = c.type(taken[i]), &b = c.type(other[i]);
    if (a.kind != TypeKind::tensor || b.kind != TypeKind::tensor || a.dtype != b.dtype || a.shape != b.shape)
      return c.fail("its branches differ in the type of result " + std::to_string(i));
    c.give_own(c.make("where.self", {pred, taken[i], other[i]}));
  }
}

}  // namespace sg::composite
