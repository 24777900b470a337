// Merges values that are the same tensor (the same memory and type; the type includes shape, strides, offset and
// dtype), and copies that readers of neither side could tell from their source.
#include <string_view>
#include <unordered_map>

#include "libgraph/infer/infer_sizes.h"
#include "libgraph/operands.h"
#include "libpasses/clean/clean_parts.h"

namespace sg::clean_parts {
namespace {

bool is_plain_view(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  return op != nullptr && op->has(kPure) && (op->has(kView) || op->has(kMayAlias)) && !op->has(kWait) &&
         !op->writes() && graph.node(n).result_count == 1 && !has_hidden_bits(op->name);
}

// The value that the node copies, if it has all elements of that value and no others; the caller compares dtype and
// strides. None = not a copy.
ValueId copied_value(const Graph& graph, NodeId n) {
  static constexpr std::string_view kCopies[] = {
      "aten.clone.default", "aten._to_copy.default", "aten.contiguous.default", "aten.lift_fresh_copy.default",
      "aten.to.dtype",      "aten.to.dtype_layout",  "aten.to.device",          "aten.reshape.default"};
  const Node& node = graph.node(n);
  if (node.args.empty() || node.result_count != 1) return {};
  const std::string_view name = graph.op_name(n);
  if (name == "aten.cat.default")  // of a single tensor
    return node.args[0].is(ArgKind::list) && node.args[0].items().size() == 1 &&
                   node.args[0].items()[0].is(ArgKind::value)
               ? node.args[0].items()[0].as_value()
               : ValueId();
  if (name == "aten.copy.default")  // a write to all of a fresh tensor
    return node.args.size() > 1 && node.args[1].is(ArgKind::value) ? node.args[1].as_value() : ValueId();
  bool found = false;
  for (std::string_view copy : kCopies) found |= copy == name;
  return found && node.args[0].is(ArgKind::value) ? node.args[0].as_value() : ValueId();
}

class Merger {
 public:
  Merger(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule)
      : graph_(scope.graph),
        tally_(scope.tally),
        alias_(alias),
        schedule_(schedule),
        sizes_(&graph_.pool(), &scope.program) {}

  size_t run() {
    for (const Input& input : graph_.inputs()) note(input.value);
    for (NodeId n : graph_.nodes()) visit(n);
    return changes_;
  }

 private:
  static uint64_t key(StorageId s, TypeId t) { return uint64_t{s.index} << 32 | t.index; }

  // Whether no conjugate or negative bit affects how it shows its memory.
  bool is_plain(ValueId v) const { return v.index >= hidden_.size() || !hidden_[v.index]; }

  // From here on v represents this memory in this type: results of writes and waits come after what they wrote.
  void note(ValueId v) {
    const StorageId s = alias_.storage_of(v);
    if (!s.is_none() && alias_.storage(s).certain && is_plain(v)) seen_[key(s, graph_.value(v).type)] = v;
  }

  void visit(NodeId n) {
    carry_hidden_bits(n);
    const Node& node = graph_.node(n);
    if (is_plain_view(graph_, n) && merge_view(n)) return;
    if (const ValueId source = copied_value(graph_, n); source && merge_copy(n, source)) return;
    for (uint32_t i = 0; i < node.result_count; ++i) note(node.result(i));
  }

  void carry_hidden_bits(NodeId n) {
    bool hidden = has_hidden_bits(graph_.op_name(n));
    for_operands(graph_, n, [&](ValueId v) { hidden |= !is_plain(v); });
    if (!hidden) return;
    hidden_.resize(graph_.value_id_limit());
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) hidden_[graph_.node(n).result(i).index] = true;
  }

  bool merge_view(NodeId n) {
    const ValueId v = graph_.node(n).result(0);
    const StorageId s = alias_.storage_of(v);
    if (s.is_none() || !alias_.storage(s).certain || !is_plain(v) || graph_.type(v).kind != TypeKind::tensor)
      return false;
    auto it = seen_.find(key(s, graph_.value(v).type));
    if (it == seen_.end()) return false;
    replace(n, v, it->second, Kind::identity, "is ");
    return true;
  }

  bool merge_copy(NodeId n, ValueId source) {
    const ValueId copy = graph_.node(n).result(0);
    const StorageId from = alias_.storage_of(source), to = alias_.storage_of(copy);
    if (from.is_none() || to.is_none() || from == to || !is_plain(source)) return false;
    const Storage &f = alias_.storage(from), &t = alias_.storage(to);
    if (!f.certain || !t.certain || graph_.value(copy).type != graph_.value(source).type) return false;
    const uint32_t at = schedule_.position(n);
    if (schedule_.is_written_after(f.alias_class, at) || schedule_.is_written_after(t.alias_class, at)) return false;
    // The caller could notice an output that shares memory with an input or another output.
    if (alias_.escapes(to) && (alias_.escapes(from) || alias_.may_be_input(from))) return false;
    if (f.alias_class < merged_.size() && merged_[f.alias_class]) return false;  // facts of this round are outdated
    // A copy of a part lets the whole go.
    const bool lives_as_long =
        alias_.may_be_input(from) || schedule_.last_use(f.alias_class) >= schedule_.last_use(t.alias_class);
    if (!lives_as_long && !is_as_large(f.owner, copy)) return false;
    merged_.resize(alias_.storages().size() + 1);
    merged_[f.alias_class] = merged_[t.alias_class] = true;
    replace(n, copy, source, Kind::copy, "copies what is never changed: ");
    return true;
  }

  bool is_as_large(ValueId a, ValueId b) {
    const Type &x = graph_.type(a), &y = graph_.type(b);
    return sizes_.count(x.shape) == sizes_.count(y.shape) && dtype_bytes(x.dtype) == dtype_bytes(y.dtype);
  }

  void replace(NodeId n, ValueId v, ValueId by, Kind kind, const char* why) {
    if (!graph_.is_used(v)) return;
    tally_.add(kind, graph_, n, why + ("%" + std::string(graph_.name(by))));
    graph_.replace_uses(v, by);
    ++changes_;
  }

  Graph& graph_;
  Tally& tally_;
  const AliasAnalysis& alias_;
  const Schedule& schedule_;
  Sizes sizes_;
  std::unordered_map<uint64_t, ValueId> seen_;
  std::vector<bool> hidden_, merged_;
  size_t changes_ = 0;
};

}  // namespace

size_t merge_identities(Scope& scope, const AliasAnalysis& alias, const Schedule& schedule) {
  return Merger(scope, alias, schedule).run();
}

}  // namespace sg::clean_parts
