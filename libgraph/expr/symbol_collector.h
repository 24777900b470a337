// The symbols that types and expressions mention. Both are interned, so each is visited once.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

#include "libgraph/graph.h"

namespace sg {

class SymbolCollector {
 public:
  enum class Of : uint8_t {
    amounts,  // of a type its shape and strides: how much there is
    all       // and where it begins, and the value of a number
  };

  SymbolCollector(const Pool& pool, Of of) : pool_(pool), of_(of) {}

  void add(StrId symbol) { symbols_.insert(symbol); }
  void add(Expr e) {
    if (e.is_none() || pool_.exprs.is_constant(e) || !exprs_.insert(e).second) return;
    std::vector<StrId> names;
    pool_.exprs.collect_symbols(e, &names);
    symbols_.insert(names.begin(), names.end());
  }
  void add(TypeId id) {
    if (!types_.insert(id).second) return;
    const Type& t = pool_.types[id];
    for (Expr e : t.shape) add(e);
    for (Expr e : t.stride) add(e);
    if (of_ == Of::all) add(t.offset), add(t.value);
    for (TypeId element : t.elements) add(element);
  }
  // Of inputs and results.
  void add_values(const Graph& graph) {
    for (const Input& input : graph.inputs()) add(graph.value(input.value).type);
    for (NodeId n : graph.nodes())
      for (uint32_t i = 0; i < graph.node(n).result_count; ++i) add(graph.value(graph.node(n).result(i)).type);
  }

  bool has(StrId symbol) const { return symbols_.contains(symbol); }
  std::unordered_set<StrId, IdHash> take() { return std::move(symbols_); }

 private:
  const Pool& pool_;
  Of of_;
  std::unordered_set<TypeId, IdHash> types_;
  std::unordered_set<Expr, IdHash> exprs_;
  std::unordered_set<StrId, IdHash> symbols_;
};

}  // namespace sg
