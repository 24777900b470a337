// sg-sub-neg: x + (-y) is x - y. A whole pass as a tool of its own; docs/tasks/write-a-pass.md walks through it.
//
// What      aten.add.Tensor(%x, %n) with %n = aten.neg(%y) becomes aten.sub.Tensor(%x, %y). The negation stays for its
//           other users; sg-clean removes one that has none left.
// Legal     nobody writes %y (or memory that it shares) between the negation and the sum, and the sum takes no factor.
// Results   bitwise equal: IEEE subtraction is addition of the negative. (A NaN stays one; its sign is nobody's.)
#include "libgraph/base/human.h"
#include "libgraph/facts/order.h"
#include "libpasses/pass.h"
#include "tools/cli/cli_pass.h"

namespace sg {
namespace {

struct Found {
  NodeId sum;
  ValueId x, y;
};

// Learn and decide: no change to the graph in here, so the facts hold for all that is found.
std::vector<Found> find_sums(const Program& program, const Graph& graph) {
  std::vector<Found> out;
  OrderFacts facts(program, graph);
  for (NodeId n : graph.nodes()) {
    const Node& sum = graph.node(n);
    if (graph.op_name(n) != "aten.add.Tensor" || sum.args.size() != 2) continue;  // a third is alpha=
    if (!sum.args[0].is(ArgKind::value) || !sum.args[1].is(ArgKind::value)) continue;
    ValueId negative = sum.args[1].as_value();
    NodeId negation = graph.value(negative).def;
    if (!negation || graph.op_name(negation) != "aten.neg.default") continue;
    ValueId y = graph.node(negation).args[0].as_value();
    if (graph.value(y).type != graph.value(negative).type) continue;   // same dtype and strides
    if (!facts.may_move_after(negation, graph.previous(n))) continue;  // y is written on the way
    out.push_back({n, sum.args[0].as_value(), y});
  }
  return out;
}

Result<Change> sub_neg(Job* job, const PassOptions&, PassContext&) {
  size_t changed = 0;
  for (const auto& program : job->programs) {
    Graph& graph = program->graph;
    for (const Found& found : find_sums(*program, graph)) {
      graph.set_op(found.sum, graph.pool().op("aten.sub.Tensor"));
      graph.set_args(found.sum, {Arg::value(found.x), Arg::value(found.y)});
      ++changed;
    }
  }
  if (changed == 0) return Change{false, "no sum with a negation", {}, {}};
  return Change{true, plural(changed, "sum") + " with a negation made a subtraction", {}, {}};
}

}  // namespace

extern const PassInfo sub_neg_pass;
const PassInfo sub_neg_pass = {"sub-neg",
                               "x + (-y) becomes x - y",
                               "",
                               Results::bitwise,
                               {},
                               {},
                               {{"sg-sub-neg step.sg | sg-clean -o lean.sg", "and without the negations"},
                                {"sg-sub-neg step.sg --text", "to look at it"}},
                               sub_neg};

}  // namespace sg

int main(int argc, char** argv) { return sg::cli::pass_main<sg::sub_neg_pass>(argc, argv); }
