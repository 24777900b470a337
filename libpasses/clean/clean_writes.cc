// Writes to fresh memory that only one tensor refers to become functional ops, which passes can move. The memory plan
// puts the result where the argument was.
#include <algorithm>
#include <unordered_map>

#include "libgraph/expr/sizes.h"
#include "libgraph/facts/in_place.h"
#include "libgraph/infer/infer.h"
#include "libgraph/operands.h"
#include "libpasses/clean/clean_parts.h"

namespace sg::clean_parts {
namespace {

// Random ops whose functional form has a different name. The stream and the numbers stay the same; sg-remat may then
// recompute them.
constexpr std::pair<std::string_view, std::string_view> kDraws[] = {
    {"aten.bernoulli_.float", "aten.bernoulli.p"},
    {"aten.bernoulli_.Tensor", "aten.bernoulli.Tensor"},
    {"aten.normal_.default", "aten.normal_functional.default"},
};

const OpInfo* row_of_functional(std::string_view name) {
  for (const auto& [written, functional] : kDraws)
    if (name == written) return find_op(functional);
  const size_t end = name.rfind('.');
  if (end == std::string_view::npos || end == 0 || name[end - 1] != '_') return nullptr;
  const OpInfo* out = find_op(std::string(name.substr(0, end - 1)) + std::string(name.substr(end)));
  return out != nullptr && out->has(kPure) ? out : nullptr;
}

// "aten.add_.Tensor" -> the row of "aten.add.Tensor"; null if none takes the same arguments.
const OpInfo* functional_of(const OpInfo& op) {
  const OpInfo* out = row_of_functional(op.name);
  if (out == nullptr || !reuses_in_place(*out) || out->params.size() != op.params.size()) return nullptr;
  for (size_t i = 0; i < op.params.size(); ++i)
    if (out->params[i].name != op.params[i].name || out->params[i].kind != op.params[i].kind) return nullptr;
  return out;
}

class Functionaliser {
 public:
  Functionaliser(Scope& scope, const AliasAnalysis& alias)
      : graph_(scope.graph), tally_(scope.tally), alias_(alias), inferrer_(scope.program) {
    uses_.resize(alias.storages().size());
    is_hidden_.resize(alias.storages().size());
    last_use_.resize(graph_.value_id_limit());
    place_.resize(graph_.node_id_limit());
    uint32_t place = 0;
    for (NodeId n : graph_.nodes()) {
      place_[n.index] = ++place;
      if (has_hidden_bits(graph_.op_name(n))) note_hidden(n);
      for_operands(graph_, n, [&](ValueId v) { last_use_[v.index] = place; });
    }
    for (const Output& output : graph_.outputs())
      if (output.value) last_use_[output.value.index] = UINT32_MAX;
  }

  // A later use is given its new name when the walk comes to it: a write that many follow would otherwise move them
  // all, as would each of these.
  size_t run() {
    size_t changes = 0;
    for (NodeId n : graph_.nodes()) {
      rename_operands(n);
      changes += visit(n);
      note_results(n);
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i)
      if (const ValueId v = graph_.outputs()[i].value; v && new_name(v) != v) graph_.set_output_value(i, new_name(v));
    return changes;
  }

 private:
  // What the walk knows of a piece of memory: the places of the last users of its values, by the names before the walk.
  struct Uses {
    TypeId type;         // of the value that is used last
    uint32_t last = 0;   // its last use
    uint32_t other = 0;  // the last use of a value of another type
    void note(TypeId t, uint32_t place) {
      if (t != type && place > last) other = last, last = place, type = t;
      else if (t != type) other = std::max(other, place);
      else last = std::max(last, place);
    }
    uint32_t of_others(TypeId t) const { return t == type ? other : last; }
  };
  // What later users of a type in a piece of memory read: the result of the last functional op that was a write.
  struct Newest {
    ValueId value;
    uint32_t since = 0;  // its place
  };

  uint64_t key_of(ValueId v) const { return uint64_t{alias_.storage_of(v).index} << 32 | graph_.value(v).type.index; }

  ValueId new_name(ValueId v) const {
    const NodeId def = graph_.value(v).def;
    if (!def || newest_.empty() || alias_.storage_of(v).is_none()) return v;
    const auto found = newest_.find(key_of(v));
    return found != newest_.end() && place_[def.index] < found->second.since ? found->second.value : v;
  }

  void rename_operands(NodeId n) {
    std::vector<ValueId> old;
    for_operands(graph_, n, [&](ValueId v) {
      if (new_name(v) != v) old.push_back(v);
    });
    for (ValueId v : old) graph_.replace_uses_in(n, v, new_name(v));
  }

  void note_results(NodeId n) {
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) {
      const ValueId v = graph_.node(n).result(i);
      const StorageId s = alias_.storage_of(v);
      if (!s.is_none()) uses_[s.index].note(graph_.value(v).type, last_use_[v.index]);
    }
  }

  void note_hidden(NodeId n) {
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
      if (const StorageId s = alias_.storage_of(graph_.node(n).result(i)); !s.is_none()) is_hidden_[s.index] = true;
  }

  bool visit(NodeId n) {
    const OpInfo* op = graph_.op_info(n);
    const OpInfo* functional = op != nullptr && op->writes() ? functional_of(*op) : nullptr;
    if (functional == nullptr || graph_.node(n).args.empty() || !graph_.node(n).args[0].is(ArgKind::value))
      return false;
    const ValueId written = graph_.node(n).args[0].as_value(), result = graph_.node(n).result(0);
    if (!is_seen_under_one_type(n, written) || (draws_random(graph_, n) && graph_.node(n).args.size() < 2))
      return false;
    const OpId before = graph_.node(n).op;
    graph_.set_op(n, graph_.pool().op(functional->name));
    Result<std::vector<Type>> types = inferrer_.infer(graph_, n);
    if (!types.ok() || types->size() != 1 || !((*types)[0] == graph_.type(written))) {
      graph_.set_op(n, before);
      return false;
    }
    tally_.add(Kind::functional, graph_, n, "only this name sees what it writes");
    newest_[key_of(written)] = {result, place_[n.index]};
    return true;
  }

  // Whether the memory is created here, and later nodes use only the tensor that `n` writes, under whatever name. After
  // an earlier write was made functional, its result's memory is judged by the facts of the old memory: the members are
  // the same, and older names are no longer used. A conjugate has the type of what it is a view of, and other values.
  bool is_seen_under_one_type(NodeId n, ValueId written) const {
    const StorageId s = alias_.storage_of(written);
    if (s.is_none() || is_hidden_[s.index] || alias_.writes(n).size() != 1) return false;
    const Storage& storage = alias_.storage(s);
    if (!storage.certain || storage.is_input() || alias_.class_members(storage.alias_class).size() != 1) return false;
    if (graph_.value(written).type != graph_.value(graph_.node(n).result(0)).type || alias_.launch_of(written))
      return false;
    if (!is_as_large(storage.owner, written)) return false;
    return uses_[s.index].of_others(graph_.value(written).type) <= place_[n.index];
  }

  // Whether the memory holds exactly the written tensor, like that of a gradient that has been viewed.
  bool is_as_large(ValueId owner, ValueId written) const {
    if (graph_.value(owner).type == graph_.value(written).type) return true;
    const Type &whole = graph_.type(owner), &seen = graph_.type(written);
    const auto count = [&](const Type& type) {
      return element_count(graph_.pool(), type, [](StrId) { return std::optional<int64_t>(); });
    };
    return whole.dtype == seen.dtype && count(whole) && count(whole) == count(seen);
  }

  Graph& graph_;
  Tally& tally_;
  const AliasAnalysis& alias_;
  TypeInferrer inferrer_;
  std::vector<Uses> uses_;                       // by storage; of the values that the walk has passed
  std::vector<bool> is_hidden_;                  // by storage: some view of it has other values
  std::unordered_map<uint64_t, Newest> newest_;  // by storage and type
  std::vector<uint32_t> last_use_;               // by value: the place of its last user; UINT32_MAX = an output
  std::vector<uint32_t> place_;                  // by node, from 1 on
};

}  // namespace

size_t make_functional(Scope& scope, const AliasAnalysis& alias) { return Functionaliser(scope, alias).run(); }

}  // namespace sg::clean_parts
