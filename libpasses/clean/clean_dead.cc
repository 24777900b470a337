// Dead code: nodes whose results are unused and whose effects are not observable. Visits nodes from last to first, so
// that a chain is removed in one pass.
#include "libgraph/facts/transfer.h"
#include "libpasses/clean/clean_parts.h"

namespace sg::clean_parts {
namespace {

class Remover {
 public:
  Remover(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule, const SymbolUses& uses, bool drop_asserts)
      : graph_(scope.graph),
        tally_(scope.tally),
        alias_(alias),
        schedule_(schedule),
        uses_(uses),
        drop_asserts_(drop_asserts) {}

  size_t run() {
    size_t removed = 0;
    for (NodeId n = graph_.last(), previous; n; n = previous) {
      previous = graph_.previous(n);
      if (!is_dead(n)) continue;
      tally_.add(Kind::dead, graph_, n, "it has no visible effect");
      graph_.erase(n);
      ++removed;
    }
    return removed;
  }

 private:
  bool is_dead(NodeId n) const {
    if (graph_.has_used_result(n)) return false;
    const uint32_t effects = alias_.effects(n);
    if (effects & (kEffectOpaque | kEffectCollective)) return false;
    if ((effects & kEffectWait) && !waits_for_transfer(n)) return false;  // collectives: on all ranks at once
    if ((effects & kEffectAssert) && !drop_asserts_) return false;
    for (StrId symbol : alias_.binds(n))
      if (uses_.is_used_outside(graph_, n, symbol)) return false;
    return writes_nothing_seen(n);
  }

  bool waits_for_transfer(NodeId n) const {
    const Arg& first = graph_.node(n).args[0];
    const NodeId launch = first.is(ArgKind::value) ? alias_.launch_of(first.as_value()) : NodeId();
    return launch && starts_transfer(graph_.op_info(launch));
  }

  // Whether no later node reads what it writes, and the caller cannot either.
  bool writes_nothing_seen(NodeId n) const {
    for (StorageId s : alias_.writes(n)) {
      const Storage& storage = alias_.storage(s);
      if (!storage.certain || storage.is_input() || alias_.escapes(s)) return false;
      if (schedule_.last_read(storage.alias_class) > schedule_.position(n)) return false;
      if (schedule_.is_written_after(storage.alias_class, schedule_.position(n)))
        return false;  // part of it may stay and be read
    }
    return true;
  }

  Graph& graph_;
  Tally& tally_;
  const AliasAnalysis& alias_;
  const Schedule& schedule_;
  const SymbolUses& uses_;
  bool drop_asserts_;
};

}  // namespace

size_t remove_dead(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule, const SymbolUses& uses,
                   bool drop_asserts) {
  return Remover(scope, alias, schedule, uses, drop_asserts).run();
}

}  // namespace sg::clean_parts
