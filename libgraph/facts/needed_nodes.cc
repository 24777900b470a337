#include "libgraph/facts/needed_nodes.h"

#include <utility>

#include "libgraph/operands.h"

namespace sg {
namespace {

class Needs {
 public:
  Needs(const Graph& graph, const AliasAnalysis& alias)
      : graph_(graph),
        alias_(alias),
        values_(graph.value_id_limit()),
        classes_(alias.storages().size()),
        nodes_(graph.node_id_limit()) {}

  std::vector<bool> find() {
    for (const Output& output : graph_.outputs())
      if (output.value) need(output.value);
    for (NodeId n = graph_.last(); n; n = graph_.previous(n)) {  // uses are behind what they use
      if (!is_needed(n)) continue;
      nodes_[n.index] = true;
      for_operands(graph_, n, [&](ValueId v) { need(v); });
      for (StorageId s : alias_.reads(n)) classes_[alias_.storage(s).alias_class] = true;
    }
    return std::move(nodes_);
  }

 private:
  bool is_needed(NodeId n) const {
    constexpr uint32_t kSeen = kEffectAssert | kEffectCollective | kEffectWait | kEffectOpaque;
    if ((alias_.effects(n) & kSeen) != 0 || !alias_.binds(n).empty()) return true;
    const Node& node = graph_.node(n);
    for (uint32_t i = 0; i < node.result_count; ++i)
      if (values_[node.result(i).index]) return true;
    for (StorageId s : alias_.writes(n))
      if (!alias_.storage(s).certain || alias_.escapes(s) || alias_.may_be_input(s) ||
          classes_[alias_.storage(s).alias_class])
        return true;
    return false;
  }

  void need(ValueId v) {
    values_[v.index] = true;
    if (const StorageId s = alias_.storage_of(v)) classes_[alias_.storage(s).alias_class] = true;
  }

  const Graph& graph_;
  const AliasAnalysis& alias_;
  std::vector<bool> values_, classes_;  // used, or read, by what is needed
  std::vector<bool> nodes_;
};

}  // namespace

std::vector<bool> needed_nodes(const Graph& graph, const AliasAnalysis& alias) { return Needs(graph, alias).find(); }

}  // namespace sg
