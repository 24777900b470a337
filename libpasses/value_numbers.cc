#include "libpasses/value_numbers.h"

#include <bit>
#include <unordered_set>

#include "libgraph/base/hashing.h"
#include "libgraph/facts/purity.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"

namespace sg {

class NumberBuilder {
 public:
  NumberBuilder(const Graph& graph, const AliasAnalysis& alias, ValueNumbers::Launches launches,
                std::vector<NodeId>* leader)
      : graph_(graph), alias_(alias), launches_(launches), leader_(*leader), value_(graph.value_id_limit()) {}

  void run() {
    leader_.resize(graph_.node_id_limit());
    for (uint32_t v = 0; v < value_.size(); ++v) value_[v] = ValueId(v);
    for (NodeId n : graph_.nodes()) note_written_classes(n);
    for (NodeId n : graph_.nodes()) {
      leader_[n.index] = is_function(n) ? find(n) : n;
      note_writes(n);
      for (uint32_t i = 0; leader_[n.index] != n && i < graph_.node(n).result_count; ++i)
        value_[graph_.node(n).result(i).index] = value_[graph_.node(leader_[n.index]).result(i).index];
    }
  }

 private:
  bool is_function(NodeId n) const {
    const OpInfo* op = graph_.op_info(n);
    if (op == nullptr || op->has(kHigherOrder) || draws_random(graph_, n)) return false;
    const bool exchanges = op->has(kCollective) || op->has(kWait);
    if (exchanges ? launches_ == ValueNumbers::Launches::themselves : !is_pure(graph_, n)) return false;
    if (exchanges && op->writes() && !op->has(kWait)) return false;
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
      if (is_ever_written(graph_.node(n).result(i))) return false;
    return graph_.node(n).result_count > 0;
  }

  // Memory filled later (aten.empty and its views) is not determined by the call that created it. Waits do not count:
  // they only complete their launch.
  void note_written_classes(NodeId n) {
    const OpInfo* op = graph_.op_info(n);
    if (op != nullptr && op->has(kWait)) return;
    for (StorageId s : alias_.writes(n)) written_.insert(alias_.storage(s).alias_class);
  }

  bool is_ever_written(ValueId v) const {
    const StorageId s = alias_.storage_of(v);
    return !s.is_none() && written_.contains(alias_.storage(s).alias_class);
  }

  NodeId find(NodeId n) {
    const uint64_t hash = hash_of(n);
    auto [begin, end] = by_hash_.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      if (!is_equal(it->second, n)) continue;
      if (!is_operand_written_since(it->second)) return it->second;
      return it->second = n;  // after a write the earlier node no longer represents the value
    }
    by_hash_.emplace(hash, n);
    return n;
  }

  uint64_t hash_of(NodeId n) const {
    Hasher h;
    h.mix(graph_.node(n).op);
    for (const Arg& arg : graph_.node(n).args)
      arg.walk([&](const Arg& a) {
        h.mix(static_cast<uint64_t>(a.kind()));
        if (a.is(ArgKind::value)) h.mix(value_[a.as_value().index]);
        else if (a.is(ArgKind::floating)) h.mix(std::bit_cast<uint64_t>(a.as_float()));
        else if (!a.has_items()) h.mix(static_cast<uint64_t>(a.as_int()));
      });
    return h.value();
  }

  bool is_equal(NodeId a, NodeId b) const {
    const Node &x = graph_.node(a), &y = graph_.node(b);
    if (x.op != y.op || x.args.size() != y.args.size() || x.result_count != y.result_count) return false;
    for (size_t i = 0; i < x.args.size(); ++i)
      if (!(numbered(x.args[i]) == numbered(y.args[i]))) return false;
    for (uint32_t i = 0; i < x.result_count; ++i)
      if (graph_.value(x.result(i)).type != graph_.value(y.result(i)).type) return false;
    return true;
  }

  Arg numbered(const Arg& arg) const {
    Arg out = arg;
    out.walk_mutable([&](Arg& a) {
      if (a.is(ArgKind::value)) a.set_value(value_[a.as_value().index]);
    });
    return out;
  }

  // Whether the memory of one of its operands was written after `n`.
  bool is_operand_written_since(NodeId n) const {
    bool written = false;
    for_operands(graph_, n, [&](ValueId v) {
      const StorageId s = alias_.storage_of(v);
      if (s.is_none()) return;
      auto it = last_write_.find(alias_.storage(s).alias_class);
      written |= it != last_write_.end() && graph_.before(n, it->second);
    });
    return written;
  }

  // A wait only completes its launch: nothing reads the buffer before it, so no value read earlier changes.
  void note_writes(NodeId n) {
    if (const OpInfo* op = graph_.op_info(n); op != nullptr && op->has(kWait)) return;
    for (StorageId s : alias_.writes(n)) last_write_[alias_.storage(s).alias_class] = n;
  }

  const Graph& graph_;
  const AliasAnalysis& alias_;
  const ValueNumbers::Launches launches_;
  std::vector<NodeId>& leader_;
  std::vector<ValueId> value_;  // by value: the first that is equal
  std::unordered_multimap<uint64_t, NodeId> by_hash_;
  std::unordered_map<uint32_t, NodeId> last_write_;  // by alias class
  std::unordered_set<uint32_t> written_;             // alias classes with a writer other than a wait
};

ValueNumbers::ValueNumbers(const Graph& graph, const AliasAnalysis& alias, Launches launches) {
  NumberBuilder(graph, alias, launches, &leader_).run();
}

}  // namespace sg
