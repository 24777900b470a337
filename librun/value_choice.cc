#include "librun/value_choice.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "libgraph/job.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"

namespace sg {
namespace {

bool chooses(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  if (!op || !op->has(kChooses)) return false;
  bool by_float = false;  // or by a mask, which comes from floats
  for_operands(graph, n, [&](ValueId v) {
    const Type& type = graph.type(v);
    by_float |= type.kind == TypeKind::tensor && !is_integral(type.dtype);
  });
  return by_float;
}

bool is_free_product(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  return op && op->has(kContraction) && !keeps_order(SumOrder::forward, graph, n);
}

// What a node does itself, or the nested graphs that it calls.
class Deeds {
 public:
  struct Found {
    bool choice = false, free_product = false;
  };

  explicit Deeds(const Program& program) : program_(program), of_nested_(program.nested.size()) {}

  Found of(const Graph& graph, NodeId n) {
    Found out{chooses(graph, n), is_free_product(graph, n)};
    for (const Arg& arg : graph.node(n).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::graph)) add(of_nested(a.as_graph()), &out);
      });
    return out;
  }

 private:
  static void add(Found more, Found* to) {
    to->choice |= more.choice;
    to->free_product |= more.free_product;
  }

  Found of_nested(NestedId id) {
    std::optional<Found>& known = of_nested_[id.index];
    if (known) return *known;
    known.emplace();  // for a graph that calls itself
    Found all;
    const Graph& body = program_.nested[id.index]->graph;
    for (NodeId n : body.nodes()) add(of(body, n), &all);
    return *(known = all);
  }

  const Program& program_;
  std::vector<std::optional<Found>> of_nested_;
};

SumOrder order_in(const Graph& graph, Deeds* deeds) {
  SumOrder out = SumOrder::free;
  std::vector<bool> depends(graph.value_id_limit());  // on a product that is not of the forward
  for (NodeId n : graph.nodes()) {
    bool does = false;
    for_operands(graph, n, [&](ValueId v) { does |= depends[v.index]; });
    const Deeds::Found found = deeds->of(graph, n);
    if (found.choice && does) return SumOrder::all;
    if (found.choice) out = SumOrder::forward;
    if (!does && !found.free_product) continue;
    for (uint32_t i = 0; i < graph.node(n).result_count; ++i) depends[graph.node(n).result(i).index] = true;
    if (writes_arguments(graph, n)) for_operands(graph, n, [&](ValueId v) { depends[v.index] = true; });
  }
  return out;
}

}  // namespace

SumOrder sum_order_of(const Job& job) {
  SumOrder out = SumOrder::free;
  for (const auto& program : job.programs) {
    Deeds deeds(*program);
    out = std::max(out, order_in(program->graph, &deeds));
    for (const auto& nested : program->nested) out = std::max(out, order_in(nested->graph, &deeds));
  }
  return out;
}

bool keeps_order(SumOrder order, const Graph& graph, NodeId n) {
  const bool is_forward = graph.node(n).phase == Phase::forward || graph.meta(n).copy.kind == CopyKind::remat;
  return order == SumOrder::all || (order == SumOrder::forward && is_forward);
}

}  // namespace sg
