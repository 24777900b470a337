#include "libgraph/facts/alias.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "libgraph/base/disjoint_sets.h"
#include "libgraph/facts/alias_body.h"
#include "libgraph/facts/transfer.h"
#include "libgraph/facts/view_rule.h"
#include "libgraph/op.h"

namespace sg {
namespace {

bool has_storage(const Type& type) {
  return type.kind == TypeKind::tensor || type.kind == TypeKind::list || type.kind == TypeKind::opaque ||
         type.kind == TypeKind::unknown;
}

// A collective of a valid job has few inputs outside of lists; the cap keeps work on hostile argument lists linear.
constexpr size_t kMaxPinned = 8;

}  // namespace

class AliasBuilder {
 public:
  AliasBuilder(const Program& program, const Graph& graph, const AliasOptions& options, BodySummaries* bodies,
               AliasAnalysis* out)
      : program_(program), graph_(graph), options_(options), bodies_(*bodies), out_(*out) {}

  void build() {
    out_.storage_of_.resize(graph_.value_id_limit());
    out_.launch_.resize(graph_.value_id_limit());
    for (auto* parts : {&out_.reads_, &out_.writes_, &out_.groups_, &out_.binds_})
      parts->resize(graph_.node_id_limit());
    out_.effects_.resize(graph_.node_id_limit());
    for (const Input& input : graph_.inputs())
      if (has_storage(graph_.type(input.value))) new_storage(input.value, NodeId(), true);
    for (NodeId n : graph_.nodes()) visit(n);
    number_classes();
  }

 private:
  struct Operand {
    ValueId value;
    StorageId storage;   // none = a scalar
    const Param* param;  // null if the schema has no such parameter
    uint32_t item;       // index of this value within its list argument
    bool in_list;
  };

  void visit(NodeId n) {
    gather_operands(n);
    read_.clear(), written_.clear(), group_.clear(), bound_.clear();
    effects_ = 0;
    const OpInfo* op = graph_.op_info(n);
    if (!op) visit_opaque(n);
    else if (op->has(kHigherOrder)) visit_higher_order(n, *op);
    else visit_by_schema(n, *op);
    add_binds(n, op);
    store(n);
  }

  void gather_operands(NodeId n) {
    operands_.clear();
    const OpInfo* op = graph_.op_info(n);
    const std::vector<Arg>& args = graph_.node(n).args;
    for (size_t i = 0; i < args.size(); ++i) {
      int index = !op                       ? -1
                  : args[i].key().is_none() ? static_cast<int>(i)
                                            : op->param_index(graph_.pool().strings[args[i].key()]);
      bool known = op && index >= 0 && static_cast<size_t>(index) < op->params.size();
      const Param* param = known ? &op->params[static_cast<size_t>(index)] : nullptr;
      uint32_t item = 0;
      args[i].walk([&](const Arg& a) {
        if (!a.is(ArgKind::value)) return;
        operands_.push_back({a.as_value(), out_.storage_of_[a.as_value().index], param, item++, args[i].has_items()});
      });
    }
  }

  // --- ops in the op table ---

  void visit_by_schema(NodeId n, const OpInfo& op) {
    if (draws_random(graph_, n)) effects_ |= kEffectRandom;
    if (op.has(kHostSync)) effects_ |= kEffectHostSync;
    if (op.has(kAssert)) effects_ |= kEffectAssert;
    if (op.has(kWait)) effects_ |= kEffectWait;
    if (op.has(kCollective)) add_collective(n);
    const Node& node = graph_.node(n);
    bool all_views = node.result_count > 0;
    const bool writes = writes_arguments(graph_, n);
    for (uint32_t i = 0; i < node.result_count; ++i) all_views &= place_result(n, op, i);
    for (const Operand& o : operands_) {
      if (o.storage.is_none() || op.has(kSize)) continue;
      if (writes && o.param && o.param->written) written_.push_back(o.storage);
      else if (!(all_views && o.param && o.param->alias)) read_.push_back(o.storage);
    }
    if (op.has(kWait)) complete_wait();
  }

  // Gives result `i` its storage. Returns true if that is certainly the storage of an argument.
  bool place_result(NodeId n, const OpInfo& op, uint32_t i) {
    ValueId v = graph_.node(n).result(i);
    if (!has_storage(graph_.type(v))) return true;
    if (op.has(kCollective) || starts_transfer(&op)) out_.launch_[v.index] = n;
    const ResultInfo* info = result_info(op, i);
    sources_.clear();
    if (info && info->alias)
      for (const Operand& o : operands_)
        if (o.param && o.param->alias == info->alias && !o.storage.is_none()) sources_.push_back(&o);
    if (sources_.empty()) {
      new_storage(v, n, true);
      return false;
    }
    // The sources are items of a list: a list-returning op gives result i for item i; any other op picks an unknown
    // one.
    if (sources_.size() > 1 && op.returns_list)
      for (const Operand* o : sources_)
        if (o->in_list && o->item == i) return share(v, *o);
    if (sources_.size() > 1) return new_maybe(v, n), false;
    ViewAnswer view = ViewAnswer::yes;
    if (op.has(kMayAlias)) view = result_is_view(graph_, n, sources_[0]->value, v, options_.sizes);
    if (view == ViewAnswer::yes) return share(v, *sources_[0]);
    if (view == ViewAnswer::no) new_storage(v, n, true);
    else new_maybe(v, n);
    return false;
  }

  static const ResultInfo* result_info(const OpInfo& op, uint32_t i) {
    if (op.results.empty()) return nullptr;
    if (op.returns_list) return &op.results[0];
    return i < op.results.size() ? &op.results[i] : nullptr;
  }

  bool share(ValueId v, const Operand& source) {
    out_.storage_of_[v.index] = source.storage;
    if (out_.launch_[v.index].is_none()) out_.launch_[v.index] = out_.launch_[source.value.index];
    return true;
  }

  void new_maybe(ValueId v, NodeId n) {  // either new, or the storage of one of the sources
    StorageId s = new_storage(v, n, false);
    for (const Operand* o : sources_) unite(s, o->storage);
  }

  void add_collective(NodeId n) {
    effects_ |= kEffectCollective;
    for (const Arg& arg : graph_.node(n).args)
      if (arg.is(ArgKind::group)) group_.push_back(arg.as_group());
    if (group_.empty()) effects_ |= kEffectOpaque;  // unknown group: ordered against everything
  }

  void complete_wait() {
    for (const Operand& o : operands_) {
      if (o.storage.is_none() || (o.param && !o.param->alias)) continue;  // a wait only keeps these alive
      written_.push_back(o.storage);
      NodeId launch = out_.launch_[o.value.index];
      if (launch) pin_inputs(launch, o.value);
    }
  }

  // Pins the inputs that the collective `launch` keeps reading until `waited` is waited for.
  void pin_inputs(NodeId launch, ValueId waited) {
    const Node& node = graph_.node(launch);
    std::span<const StorageId> inputs = out_.reads(launch);
    const Value& value = graph_.value(waited);
    if (node.is_tuple && value.def == launch && !node.args.empty() && node.args[0].is(ArgKind::list)) {
      const ArgList& items = node.args[0].items();  // a coalesced collective: result i comes from input i
      if (value.index < items.size() && items[value.index].is(ArgKind::value)) {
        StorageId s = out_.storage_of_[items[value.index].as_value().index];
        if (!s.is_none()) read_.push_back(s);
        return;
      }
    }
    for (StorageId s : inputs.first(std::min(inputs.size(), kMaxPinned))) read_.push_back(s);
  }

  // --- ops that are not in the op table, and calls ---

  void visit_opaque(NodeId n) {
    effects_ |= kEffectOpaque;
    if (draws_random(graph_, n)) effects_ |= kEffectRandom;
    StorageId all;
    for (const Operand& o : operands_) {
      if (o.storage.is_none()) continue;
      written_.push_back(o.storage);
      all.is_none() ? void(all = o.storage) : unite(all, o.storage);
    }
    const Node& node = graph_.node(n);
    for (uint32_t i = 0; i < node.result_count; ++i) {
      if (!has_storage(graph_.type(node.result(i)))) continue;
      StorageId s = new_storage(node.result(i), n, all.is_none());
      all.is_none() ? void(all = s) : unite(all, s);
    }
  }

  void visit_higher_order(NodeId n, const OpInfo& op) {
    std::vector<const BodySummary*> bodies;
    for (const Arg& arg : graph_.node(n).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::graph)) bodies.push_back(&bodies_.of(a.as_graph()));
      });
    bool is_call = op.name == "sg.call";
    bool opaque = is_call && !call_fits(n, bodies);
    for (const BodySummary* b : bodies) opaque |= b->opaque || (!is_call && b->writes_inputs);
    if (opaque) return visit_opaque(n);
    if (is_call) visit_call(n, *bodies[0]);
    else visit_by_schema(n, op);
    for (const BodySummary* b : bodies) {
      effects_ |= b->effects;
      group_.insert(group_.end(), b->groups.begin(), b->groups.end());
      bound_.insert(bound_.end(), b->binds.begin(), b->binds.end());
    }
  }

  // The arguments of sg.call after its body, with lists flattened: one per input of the body.
  std::vector<const Arg*> call_arguments(NodeId n) const {
    std::vector<const Arg*> out;
    for (const Arg& arg : graph_.node(n).args) {
      if (arg.is(ArgKind::graph)) continue;
      if (!arg.is(ArgKind::list)) out.push_back(&arg);
      else
        for (const Arg& item : arg.items()) out.push_back(&item);
    }
    return out;
  }

  bool call_fits(NodeId n, const std::vector<const BodySummary*>& bodies) const {
    return bodies.size() == 1 && bodies[0]->inputs.size() == call_arguments(n).size() &&
           bodies[0]->results.size() == graph_.node(n).result_count;
  }

  void visit_call(NodeId n, const BodySummary& body) {
    std::unordered_map<uint32_t, StorageId> by_class, by_storage;  // body class or storage -> storage here
    std::vector<const Arg*> args = call_arguments(n);
    auto join_class = [&](const BodySummary::Place& place, StorageId ours) {
      auto [it, is_new] = by_class.emplace(place.alias_class, ours);
      if (!is_new) unite(it->second, ours);
    };
    for (size_t i = 0; i < args.size(); ++i) {
      const BodySummary::Place& place = body.inputs[i];
      StorageId s = args[i]->is(ArgKind::value) ? out_.storage_of_[args[i]->as_value().index] : StorageId();
      if (s.is_none() || place.storage.is_none()) continue;
      by_storage.emplace(place.storage.index, s);
      join_class(place, s);
      (place.written ? written_ : read_).push_back(s);
    }
    const Node& node = graph_.node(n);
    for (uint32_t i = 0; i < node.result_count; ++i) {
      if (!has_storage(graph_.type(node.result(i)))) continue;
      const BodySummary::Place& place = body.results[i];
      auto known = place.storage.is_none() ? by_storage.end() : by_storage.find(place.storage.index);
      if (known != by_storage.end()) {
        out_.storage_of_[node.result(i).index] = known->second;
        continue;
      }
      StorageId s = new_storage(node.result(i), n, place.certain);
      if (place.storage.is_none()) continue;
      by_storage.emplace(place.storage.index, s);
      join_class(place, s);
    }
  }

  void add_binds(NodeId n, const OpInfo* op) {
    const auto& binds = graph_.meta(n).binds;
    if (binds) {
      bound_.insert(bound_.end(), binds->begin(), binds->end());
    } else if (!op || op->has(kBindsSymbol)) {
      std::vector<StrId> by_rule = default_binds(program_, graph_, n);
      bound_.insert(bound_.end(), by_rule.begin(), by_rule.end());
    }
    if (!bound_.empty()) effects_ |= kEffectHostSync;
  }

  // --- storages ---

  StorageId new_storage(ValueId owner, NodeId def, bool certain) {
    StorageId s(static_cast<uint32_t>(out_.storages_.size()));
    Storage storage;
    storage.owner = owner;
    storage.def = def;
    storage.certain = certain;
    out_.storages_.push_back(storage);
    classes_.add();
    out_.storage_of_[owner.index] = s;
    return s;
  }

  void unite(StorageId a, StorageId b) { classes_.join(a.index, b.index); }

  void store(NodeId n) {
    sort_unique(&read_), sort_unique(&written_), sort_unique(&group_), sort_unique(&bound_);
    std::erase_if(read_, [&](StorageId s) { return std::binary_search(written_.begin(), written_.end(), s); });
    out_.reads_[n.index] = append(&out_.storage_list_, read_);
    out_.writes_[n.index] = append(&out_.storage_list_, written_);
    out_.groups_[n.index] = append(&out_.group_list_, group_);
    out_.binds_[n.index] = append(&out_.symbol_list_, bound_);
    out_.effects_[n.index] = effects_;
  }

  template <class T>
  static AliasAnalysis::Part append(std::vector<T>* list, const std::vector<T>& items) {
    AliasAnalysis::Part part{static_cast<uint32_t>(list->size()), static_cast<uint32_t>(items.size())};
    list->insert(list->end(), items.begin(), items.end());
    return part;
  }

  void number_classes() {
    std::vector<uint32_t> number(classes_.size());
    for (uint32_t s = 0; s < classes_.size(); ++s) {
      uint32_t root = classes_.first_of(s);  // the smallest of its class, so the one numbered first
      if (root == s) {
        number[s] = static_cast<uint32_t>(out_.classes_.size());
        out_.classes_.emplace_back();
      }
      out_.storages_[s].alias_class = number[root];
      ++out_.classes_[number[root]].count;
    }
    uint32_t begin = 0;
    for (auto& part : out_.classes_) part.begin = begin, begin += part.count, part.count = 0;
    out_.class_list_.resize(classes_.size());
    out_.class_escapes_.resize(out_.classes_.size());
    out_.class_has_input_.resize(out_.classes_.size());
    for (const Output& o : graph_.outputs())
      if (o.value && !out_.storage_of_[o.value.index].is_none())
        out_.storages_[out_.storage_of_[o.value.index].index].is_output = true;
    for (uint32_t s = 0; s < classes_.size(); ++s) {
      const Storage& storage = out_.storages_[s];
      auto& part = out_.classes_[storage.alias_class];
      out_.class_list_[part.begin + part.count++] = StorageId(s);
      if (storage.is_input()) out_.class_has_input_[storage.alias_class] = 1;
      if (storage.is_input() || storage.is_output) out_.class_escapes_[storage.alias_class] = 1;
    }
  }

  const Program& program_;
  const Graph& graph_;
  const AliasOptions& options_;
  BodySummaries& bodies_;
  AliasAnalysis& out_;
  DisjointSets<uint32_t> classes_;  // of storages
  std::vector<Operand> operands_;   // of the current node, like all fields below
  std::vector<const Operand*> sources_;
  std::vector<StorageId> read_, written_;
  std::vector<GroupId> group_;
  std::vector<StrId> bound_;
  uint32_t effects_ = 0;
};

AliasAnalysis::AliasAnalysis(const Program& program, const Graph& graph, const AliasOptions& options) {
  BodySummaries bodies(program, options);
  AliasBuilder(program, graph, options, &bodies, this).build();
}

AliasAnalysis::AliasAnalysis(const Program& program, const Graph& graph, const AliasOptions& options,
                             BodySummaries* bodies) {
  AliasBuilder(program, graph, options, bodies, this).build();
}

std::span<const StorageId> AliasAnalysis::class_members(uint32_t alias_class) const {
  return slice(class_list_, classes_[alias_class]);
}

std::vector<StorageId> AliasAnalysis::root_set(ValueId v) const {
  StorageId s = storage_of(v);
  if (s.is_none()) return {};
  if (storage(s).certain) return {s};
  auto members = class_members(storage(s).alias_class);
  return {members.begin(), members.end()};
}

bool AliasAnalysis::may_alias(ValueId a, ValueId b) const {
  StorageId x = storage_of(a), y = storage_of(b);
  return !x.is_none() && !y.is_none() && storage(x).alias_class == storage(y).alias_class;
}

bool AliasAnalysis::must_alias(ValueId a, ValueId b) const {
  return !storage_of(a).is_none() && storage_of(a) == storage_of(b);
}

}  // namespace sg
