#include "libgraph/import/repair_types.h"

#include <unordered_set>
#include <vector>

#include "libgraph/infer/check_types.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"

namespace sg {
namespace {

class Repair {
 public:
  Repair(Program& program, Graph& graph)
      : program_(program), graph_(graph), pool_(graph.pool()), checker_(program), repaired_(graph.value_id_limit()) {}

  size_t run() {
    for (NodeId n : graph_.nodes()) {
      bind(n);
      bind_once(n);
      const OpInfo* op = graph_.op_info(n);
      if (op && (op->has(kPure) || !op->has(kBindsSymbol))) hold_against_rule(n);
    }
    return faults_;
  }

 private:
  void set(ValueId v, Type type) {
    graph_.set_type(v, pool_.types.intern(std::move(type)));
    repaired_[v.index] = true;
  }

  // One symbol per result: replaces a number recorded in its place.
  void bind(NodeId n) {
    const auto& binds = graph_.meta(n).binds;
    const Node& node = graph_.node(n);
    if (!binds || binds->size() != node.result_count) return;
    for (uint32_t i = 0; i < node.result_count; ++i) {
      Type type = graph_.type(node.result(i));
      const Symbol* symbol = program_.find_symbol((*binds)[i]);
      bool is_hint = type.kind == TypeKind::integer && type.has_value && pool_.exprs.is_constant(type.value);
      if (!is_hint || !symbol || symbol->kind != SymbolKind::data) continue;
      type.value = pool_.exprs.symbol((*binds)[i]);
      set(node.result(i), std::move(type));
    }
  }

  // A value that is read twice has one symbol, defined by the first read.
  void bind_once(NodeId n) {
    std::vector<StrId> binds = graph_.meta(n).binds ? *graph_.meta(n).binds : default_binds(program_, graph_, n);
    const size_t count = binds.size();
    std::erase_if(binds, [&](StrId s) { return !bound_.insert(s).second; });
    if (binds.size() == count) return;
    NodeMeta meta = graph_.meta(n);
    meta.binds = std::move(binds);
    graph_.set_meta(n, std::move(meta));
  }

  void hold_against_rule(NodeId n) {
    bool behind = false;
    for_operands(graph_, n, [&](ValueId v) { behind = behind || repaired_[v.index]; });
    if (!behind && !checker_.may_be_error(graph_, n)) return;  // nothing found here would be repaired
    found_.clear();
    checker_.check(graph_, n, &found_);
    for (TypeDisagreement& d : found_) {
      if (!d.reason.empty() || !(d.exception ? d.exception->is_error() : behind)) continue;
      set(graph_.node(n).result(d.result), std::move(d.inferred));
      if (d.exception != nullptr) ++faults_;
    }
  }

  Program& program_;
  Graph& graph_;
  Pool& pool_;
  TypeChecker checker_;
  std::vector<bool> repaired_;  // by value
  std::unordered_set<StrId, IdHash> bound_;
  std::vector<TypeDisagreement> found_;
  size_t faults_ = 0;
};

}  // namespace

size_t repair_recorded_types(Program& program) {
  size_t count = Repair(program, program.graph).run();
  for (auto& nested : program.nested) count += Repair(program, nested->graph).run();
  return count;
}

}  // namespace sg
