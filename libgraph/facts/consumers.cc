#include "libgraph/facts/consumers.h"

#include <algorithm>

#include "libgraph/facts/purity.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"

namespace sg {
namespace {

bool makes_numbers(const Graph& graph, NodeId n) {
  const Node& node = graph.node(n);
  for (uint32_t i = 0; i < node.result_count; ++i) {
    const Type& type = graph.type(node.result(i));
    if (type.kind != TypeKind::tensor || !type.shape.empty()) return false;
  }
  return node.result_count != 0;
}

// Whether v is the first operand of n: what n is computed from, not a factor it is scaled by.
bool is_first_operand(const Graph& graph, ValueId v, NodeId n) {
  ValueId first;
  for_operands(graph, n, [&](ValueId operand) { first = first ? first : operand; });
  return first == v;
}

// Walks from the last node to the first, so that all uses of a node are classified before it.
class Finder {
 public:
  Finder(const Graph& graph, const AliasAnalysis& alias)
      : graph_(graph),
        alias_(alias),
        consumes_(graph.node_id_limit()),
        makes_loss_(graph.node_id_limit()),
        is_gradient_(graph.node_id_limit()) {}

  std::vector<bool> find() {
    sort_memory();
    for (NodeId n = graph_.last(); n; n = graph_.previous(n)) look_at(n);
    return std::move(consumes_);
  }

 private:
  void look_at(NodeId n) {
    const bool numbers = makes_numbers(graph_, n);
    bool loss = false, gradient = false, used = false, only = true;
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) {
      const ValueId v = graph_.node(n).result(i);
      graph_.for_each_use(v, [&](Use use) {
        used = true;
        const bool is_output = use.user.is_none();
        const OutputKind kind = is_output ? graph_.outputs()[use.output].kind : OutputKind::none;
        loss |= is_output ? kind == OutputKind::loss : makes_loss_[use.user.index];
        gradient |= is_output ? kind == OutputKind::gradient
                              : is_gradient_[use.user.index] && is_first_operand(graph_, v, use.user);
        only &= is_output ? kind == OutputKind::buffer || kind == OutputKind::other : consumes_[use.user.index];
      });
    }
    makes_loss_[n.index] = loss;
    is_gradient_[n.index] = numbers && gradient;
    const bool is_passed = used && only;
    const bool ends = is_timeless(graph_, n)    ? numbers || is_passed
                      : writes_only(n, inputs_) ? is_passed || !used
                                                : is_passed && writes_only(n, others_);
    consumes_[n.index] = ends && !loss && !is_gradient_[n.index];
  }

  // Classifies memory by alias class.
  void sort_memory() {
    uint32_t classes = 0;
    for (const Storage& s : alias_.storages()) classes = std::max(classes, s.alias_class + 1);
    inputs_.assign(classes, true), others_.assign(classes, true);
    for (const Storage& s : alias_.storages()) (s.is_input() ? others_ : inputs_)[s.alias_class] = false;
    for (const Output& output : graph_.outputs()) {
      const StorageId s = output.value ? alias_.storage_of(output.value) : StorageId();
      if (output.kind == OutputKind::gradient && !s.is_none()) others_[alias_.storage(s).alias_class] = false;
    }
  }

  bool writes_only(NodeId n, const std::vector<bool>& classes) const {
    const OpInfo* op = graph_.op_info(n);
    if (op == nullptr || !op->writes() || op->has(kCollective)) return false;
    return std::ranges::all_of(alias_.writes(n), [&](StorageId s) { return classes[alias_.storage(s).alias_class]; });
  }

  const Graph& graph_;
  const AliasAnalysis& alias_;
  std::vector<bool> consumes_;
  std::vector<bool> makes_loss_;   // the loss depends on it
  std::vector<bool> is_gradient_;  // a single number that is a gradient, or that a gradient is computed from
  // By alias class: it holds inputs only; it holds neither inputs nor gradients.
  std::vector<bool> inputs_, others_;
};

}  // namespace

bool is_timeless(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  return op != nullptr && is_pure(graph, n) && !op->has(kHigherOrder) && !draws_random(graph, n);
}

std::vector<bool> find_consumers(const Graph& graph, const AliasAnalysis& alias) { return Finder(graph, alias).find(); }

}  // namespace sg
