// Writes to fresh memory that only one tensor refers to become functional ops, which passes can move. The memory plan
// puts the result where the argument was.
#include "libgraph/expr/sizes.h"
#include "libgraph/in_place.h"
#include "libgraph/infer/infer.h"
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
    members_.resize(alias.storages().size());
    for (NodeId n : graph_.nodes())
      for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) {
        const StorageId s = alias.storage_of(graph_.node(n).result(i));
        if (!s.is_none()) members_[s.index].push_back(graph_.node(n).result(i));
      }
  }

  size_t run() {
    size_t changes = 0;
    for (NodeId n : graph_.nodes()) changes += visit(n);
    return changes;
  }

 private:
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
    redirect_later_uses(n, written, result);
    return true;
  }

  // Whether the memory is created here, and later nodes use only the tensor that `n` writes, under whatever name. After
  // an earlier write was made functional, its result's memory is judged by the facts of the old memory: the members are
  // the same, and older names are no longer used.
  bool is_seen_under_one_type(NodeId n, ValueId written) const {
    const StorageId s = alias_.storage_of(written);
    if (s.is_none() || alias_.writes(n).size() != 1) return false;
    const Storage& storage = alias_.storage(s);
    if (!storage.certain || storage.is_input() || alias_.class_members(storage.alias_class).size() != 1) return false;
    if (graph_.value(written).type != graph_.value(graph_.node(n).result(0)).type || alias_.launch_of(written))
      return false;
    if (!is_as_large(storage.owner, written)) return false;
    for (ValueId v : members_[s.index])
      if (graph_.before(graph_.value(v).def, n) && graph_.value(v).type != graph_.value(written).type &&
          is_used_behind(v, n))
        return false;
    return true;
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

  bool is_used_behind(ValueId v, NodeId n) const {
    bool found = false;
    graph_.for_each_use(v, [&](Use use) { found |= use.user.is_none() || graph_.before(n, use.user); });
    return found;
  }

  void redirect_later_uses(NodeId n, ValueId written, ValueId result) {
    for (ValueId v : members_[alias_.storage_of(written).index]) {
      if (!graph_.before(graph_.value(v).def, n) || graph_.value(v).type != graph_.value(written).type) continue;
      std::vector<Use> later;
      graph_.for_each_use(v, [&](Use use) {
        if (use.user.is_none() || graph_.before(n, use.user)) later.push_back(use);
      });
      for (Use use : later) {
        if (use.user.is_none()) graph_.set_output_value(use.output, result);
        else graph_.replace_uses_in(use.user, v, result);
      }
    }
  }

  Graph& graph_;
  Tally& tally_;
  const AliasAnalysis& alias_;
  TypeInferrer inferrer_;
  std::vector<std::vector<ValueId>> members_;  // by storage: the values in it
};

}  // namespace

size_t make_functional(Scope& scope, const AliasAnalysis& alias) { return Functionaliser(scope, alias).run(); }

}  // namespace sg::clean_parts
