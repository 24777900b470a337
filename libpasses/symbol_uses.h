// SymbolUses: the symbols that occur in a program's types, arguments, bindings, shardings and random origins. Guards
// and declarations do not count.
//
// A pure function of a const program, in linear time; each type is examined once.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "libgraph/job.h"

namespace sg {

class SymbolUses {
 public:
  explicit SymbolUses(const Program& program);

  const std::unordered_set<StrId, IdHash>& all() const { return all_; }

  // Whether the symbol occurs anywhere outside this node's own results and bindings; here guards do count.
  bool is_used_outside(const Graph& graph, NodeId n, StrId symbol) const;

 private:
  struct Site {
    const Graph* graph;
    NodeId node;  // none = a port
  };
  void note(const Site& site, StrId symbol);
  void expr(const Site& site, Expr e);
  void exprs(const Site& site, const std::vector<Expr>& list);
  void type(const Site& site, TypeId t);
  void collect(const Graph& graph);

  const Program& program_;
  std::unordered_set<StrId, IdHash> all_, in_guards_;
  // By symbol: the one node that mentions it; graph null = several nodes or a port do.
  std::unordered_map<StrId, Site, IdHash> only_;
  std::unordered_map<TypeId, std::vector<StrId>, IdHash> of_type_;
};

}  // namespace sg
