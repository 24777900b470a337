// SymbolUses: which symbols a program needs, and whether one node alone is what needs them.
//
// A symbol occurs in types, arguments, bindings, shardings and random origins; that is all(). A guard holds of a symbol
// that occurs, but is no occurrence; it does keep the symbol from being one node's own (is_used_outside). A declaration
// is neither. Linear time; each type is examined once.
#pragma once

#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "libgraph/job.h"

namespace sg {

class SymbolUses {
 public:
  explicit SymbolUses(const Program& program);

  const std::unordered_set<StrId, IdHash>& all() const { return all_; }

  // Whether it occurs in another place than this node, or a guard is about it.
  bool is_used_outside(const Graph& graph, NodeId n, StrId symbol) const;

 private:
  struct Site {
    const Graph* graph;
    NodeId node;  // none = a port
    bool operator==(const Site&) const = default;
  };
  void note(const Site& site, StrId symbol);
  void note_expr(const Site& site, Expr e);
  void note_exprs(const Site& site, const std::vector<Expr>& list);
  void note_type(const Site& site, TypeId t);
  void note_graph(const Graph& graph);

  const Program& program_;
  std::unordered_set<StrId, IdHash> all_, in_guards_;
  // By symbol that occurs: the node that alone mentions it; none = a port does, or several nodes.
  std::unordered_map<StrId, std::optional<Site>, IdHash> only_node_;
  std::unordered_map<TypeId, std::vector<StrId>, IdHash> of_type_;
};

}  // namespace sg
