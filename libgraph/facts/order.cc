#include "libgraph/facts/order.h"

#include <algorithm>
#include <cassert>
#include <unordered_map>
#include <unordered_set>

#include "libgraph/group_name.h"
#include "libgraph/operands.h"

namespace sg {
namespace {

constexpr uint32_t kHostOrder = kEffectHostSync | kEffectAssert;
constexpr uint32_t kOrderEffects = kHostOrder | kEffectCollective | kEffectOpaque;
constexpr int kMaxTypeDepth = 16;

void collect_symbols(const Pool& pool, const Type& type, std::vector<StrId>* out, int depth = 0) {
  auto add = [&](Expr e) {
    if (!e.is_none()) pool.exprs.collect_symbols(e, out);
  };
  for (Expr e : type.shape) add(e);
  for (Expr e : type.stride) add(e);
  if (type.kind == TypeKind::tensor) add(type.offset);
  if (type.has_value && type.kind != TypeKind::floating) add(type.value);
  if (depth < kMaxTypeDepth)
    for (TypeId element : type.elements) collect_symbols(pool, pool.types[element], out, depth + 1);
}

// The symbols that nodes use: in the types of their results, in their arguments and in the bodies that they call, those
// which bodies call included. Each body is walked once.
class NodeSymbols {
 public:
  NodeSymbols(const Program& program, std::vector<StrId>* out) : program_(program), out_(out) {}

  void add_node(const Graph& graph, NodeId n) {
    add(graph, n);
    walk_bodies();
  }
  void add_body(NestedId body) {
    enter(body);
    walk_bodies();
  }

 private:
  void add(const Graph& graph, NodeId n) {
    const Node& node = graph.node(n);
    for (uint32_t i = 0; i < node.result_count; ++i) collect_symbols(graph.pool(), graph.type(node.result(i)), out_);
    for (const Arg& arg : node.args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::expr)) graph.pool().exprs.collect_symbols(a.as_expr(), out_);
        if (a.is(ArgKind::graph)) enter(a.as_graph());
      });
  }

  void enter(NestedId body) {
    if (body.index < program_.nested.size() && entered_.insert(body).second) bodies_.push_back(body);
  }

  void walk_bodies() {
    while (!bodies_.empty()) {
      const Graph& graph = program_.nested[bodies_.back().index]->graph;
      bodies_.pop_back();
      for (const Input& input : graph.inputs()) collect_symbols(graph.pool(), graph.type(input.value), out_);
      for (NodeId n : graph.nodes()) add(graph, n);
    }
  }

  const Program& program_;
  std::vector<StrId>* out_;
  std::vector<NestedId> bodies_;  // yet to be walked
  std::unordered_set<NestedId, IdHash> entered_;
};

}  // namespace

// Walks the schedule once and keeps, for every kind of order, the last node that a later one must wait for.
class ConstraintBuilder {
 public:
  explicit ConstraintBuilder(OrderFacts* facts) : facts_(*facts), graph_(facts->graph_), alias_(facts->alias_) {}

  void build() {
    last_writer_.resize(alias_.storages().size());
    readers_.resize(alias_.storages().size());
    facts_.constraints_.resize(graph_.node_id_limit());
    for (NodeId n : graph_.nodes())
      for (StrId s : alias_.binds(n)) binder_.emplace(s, n);
    for (NodeId n : graph_.nodes()) {
      list_.clear();
      add_data(n);
      add_memory(n);
      add_symbols(n);
      add_effects(n);
      store(n);
    }
  }

 private:
  void add(NodeId before, OrderReason reason, ValueId value = {}, GroupId group = {}, StrId symbol = {}) {
    list_.push_back({before, reason, value, group, symbol});
  }

  void add_data(NodeId n) {
    for_operands(graph_, n, [&](ValueId v) {
      NodeId def = graph_.value(v).def;
      if (def) add(def, OrderReason::data, v);
    });
  }

  void add_memory(NodeId n) {
    for (const OrderFacts::Access& access : facts_.accesses(n)) {
      NodeId writer = last_writer_[access.alias_class];
      std::vector<NodeId>& readers = readers_[access.alias_class];
      ValueId value = alias_.storage(access.storage).owner;
      if (!access.write) {
        if (writer) add(writer, OrderReason::read_after_write, value);
        readers.push_back(n);
        continue;
      }
      for (NodeId r : readers) add(r, OrderReason::write_after_read, value);
      if (writer) add(writer, OrderReason::write_after_write, value);
      readers.clear();
      last_writer_[access.alias_class] = n;
    }
  }

  // Nodes that define symbols keep their order (they sync the host), so the last one used stands for all of them. At
  // job scope they do not, and each one is listed.
  void add_symbols(NodeId n) {
    if (binder_.empty()) return;
    if (facts_.scope_ == OrderScope::job) return add_each_symbol(n);
    Binding last;
    const Node& node = graph_.node(n);
    for (uint32_t i = 0; i < node.result_count; ++i)
      last = later(last, of_type(graph_.value(node.result(i)).type, n), n);
    for (const Arg& arg : node.args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::expr)) last = later(last, of_expr(a.as_expr(), n), n);
        if (a.is(ArgKind::graph)) last = later(last, of_body(a.as_graph(), n), n);
      });
    if (last.node) add(last.node, OrderReason::symbol, {}, {}, last.symbol);
  }

  void add_each_symbol(NodeId n) {
    symbols_.clear();
    const Node& node = graph_.node(n);
    seen_types_.clear();
    // A symbol in the type of an argument that a node makes needs no constraint of its own: the argument's node implies
    // it.
    for (const Arg& arg : node.args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::value) && graph_.value(a.as_value()).def) seen_types_.insert(graph_.value(a.as_value()).type);
        if (a.is(ArgKind::expr)) pool().exprs.collect_symbols(a.as_expr(), &symbols_);
        if (a.is(ArgKind::graph)) body_symbols(a.as_graph(), &symbols_);
      });
    for (uint32_t i = 0; i < node.result_count; ++i)
      if (const TypeId type = graph_.value(node.result(i)).type; seen_types_.insert(type).second)
        collect_symbols(pool(), pool().types[type], &symbols_);
    std::sort(symbols_.begin(), symbols_.end());
    symbols_.erase(std::unique(symbols_.begin(), symbols_.end()), symbols_.end());
    for (StrId s : symbols_)
      if (auto b = binder_.find(s); b != binder_.end() && graph_.before(b->second, n))
        add(b->second, OrderReason::symbol, {}, {}, s);
  }

  void add_effects(NodeId n) {
    uint32_t effects = alias_.effects(n);
    if (effects & facts_.host_order_) {
      if (last_host_) add(last_host_, OrderReason::host_sync);
      last_host_ = n;
    }
    if (facts_.scope_ == OrderScope::rank) add_collectives(n);
    if (!facts_.has_order_effect(n)) return;
    if (last_opaque_) add(last_opaque_, OrderReason::opaque);
    if (effects & kEffectOpaque) {
      for (NodeId e : since_opaque_) add(e, OrderReason::opaque);
      since_opaque_.clear();
      last_opaque_ = n;
    } else {
      since_opaque_.push_back(n);
    }
  }

  void add_collectives(NodeId n) {
    for (GroupId g : alias_.groups(n)) {
      NodeId& last = last_on_group_[g];
      if (last) add(last, OrderReason::collective, {}, g);
      last = n;
    }
  }

  void store(NodeId n) {
    std::sort(list_.begin(), list_.end(), [&](const Constraint& a, const Constraint& b) {
      return a.before == b.before ? a.reason < b.reason : graph_.before(a.before, b.before);
    });
    auto same = [](const Constraint& a, const Constraint& b) { return a.before == b.before; };
    list_.erase(std::unique(list_.begin(), list_.end(), same), list_.end());
    facts_.constraints_[n.index] = {static_cast<uint32_t>(facts_.constraint_list_.size()),
                                    static_cast<uint32_t>(list_.size())};
    facts_.constraint_list_.insert(facts_.constraint_list_.end(), list_.begin(), list_.end());
  }

  // --- the last node before `n` that defines a symbol of a type, an expression or a body ---

  struct Binding {
    NodeId node;
    StrId symbol;
  };

  Binding later(Binding a, Binding b, NodeId n) const {
    if (b.node.is_none() || !graph_.before(b.node, n)) return a;
    return a.node.is_none() || graph_.before(a.node, b.node) ? b : a;
  }

  // The cache holds, per type, expression and body, the last binder in the whole schedule. If that one comes after `n`
  // (a graph that the verifier refuses), an earlier one is searched for the slow way.
  Binding of_type(TypeId type, NodeId n) {
    return cached(&by_type_, type, n,
                  [&](std::vector<StrId>* out) { collect_symbols(pool(), pool().types[type], out); });
  }
  Binding of_expr(Expr e, NodeId n) {
    return cached(&by_expr_, e, n, [&](std::vector<StrId>* out) { pool().exprs.collect_symbols(e, out); });
  }
  Binding of_body(NestedId body, NodeId n) {
    return cached(&by_body_, body, n, [&](std::vector<StrId>* out) { body_symbols(body, out); });
  }

  template <class Key, class Collect>
  Binding cached(std::unordered_map<Key, Binding, IdHash>* cache, Key key, NodeId n, const Collect& collect) {
    auto it = cache->find(key);
    if (it != cache->end() && (it->second.node.is_none() || graph_.before(it->second.node, n))) return it->second;
    std::vector<StrId> symbols;
    collect(&symbols);
    Binding all, earlier;
    for (StrId s : symbols)
      if (auto b = binder_.find(s); b != binder_.end()) {
        Binding binding{b->second, s};
        earlier = later(earlier, binding, n);
        if (all.node.is_none() || graph_.before(all.node, binding.node)) all = binding;
      }
    if (it == cache->end()) cache->emplace(key, all);
    return earlier;
  }

  void body_symbols(NestedId body, std::vector<StrId>* out) const { NodeSymbols(facts_.program_, out).add_body(body); }

  const Pool& pool() const { return graph_.pool(); }

  OrderFacts& facts_;
  const Graph& graph_;
  const AliasAnalysis& alias_;
  std::vector<Constraint> list_;              // of the current node
  std::vector<NodeId> last_writer_;           // by alias class
  std::vector<std::vector<NodeId>> readers_;  // by alias class: since the last write
  std::unordered_map<StrId, NodeId, IdHash> binder_;
  std::unordered_map<TypeId, Binding, IdHash> by_type_;
  std::unordered_map<Expr, Binding, IdHash> by_expr_;
  std::unordered_map<NestedId, Binding, IdHash> by_body_;
  std::unordered_map<GroupId, NodeId, IdHash> last_on_group_;
  NodeId last_host_, last_opaque_;
  std::vector<NodeId> since_opaque_;
  std::vector<StrId> symbols_;  // of the current node
  std::unordered_set<TypeId, IdHash> seen_types_;
};

OrderFacts::OrderFacts(const Program& program, const Graph& graph, OrderScope scope)
    : program_(program),
      graph_(graph),
      scope_(scope),
      host_order_(scope == OrderScope::rank ? kHostOrder : kEffectAssert),
      alias_(program, graph) {
  collect_accesses();
  ConstraintBuilder(this).build();
}

void OrderFacts::collect_accesses() {
  accesses_.resize(graph_.node_id_limit());
  std::vector<Access> list;
  for (NodeId n : graph_.nodes()) {
    list.clear();
    for (StorageId s : alias_.writes(n)) list.push_back({alias_.storage(s).alias_class, true, s});
    for (StorageId s : alias_.reads(n)) list.push_back({alias_.storage(s).alias_class, false, s});
    std::sort(list.begin(), list.end(), [](const Access& a, const Access& b) {  // a write covers reads of its class
      if (a.alias_class != b.alias_class) return a.alias_class < b.alias_class;
      return a.write != b.write ? a.write : a.storage < b.storage;
    });
    auto same = [](const Access& a, const Access& b) { return a.alias_class == b.alias_class; };
    list.erase(std::unique(list.begin(), list.end(), same), list.end());
    accesses_[n.index] = {static_cast<uint32_t>(access_list_.size()), static_cast<uint32_t>(list.size())};
    access_list_.insert(access_list_.end(), list.begin(), list.end());
  }
}

std::span<const OrderFacts::Access> OrderFacts::accesses(NodeId n) const {
  return std::span<const Access>(access_list_).subspan(accesses_[n.index].begin, accesses_[n.index].count);
}

std::span<const Constraint> OrderFacts::constraints_into(NodeId n) const {
  Part part = constraints_[n.index];
  return std::span<const Constraint>(constraint_list_).subspan(part.begin, part.count);
}

bool OrderFacts::has_order_effect(NodeId n) const {
  return (alias_.effects(n) & kOrderEffects) != 0 || !alias_.writes(n).empty();
}

MoveVerdict OrderFacts::may_swap(NodeId earlier, NodeId later) const {
  assert(earlier.index < accesses_.size() && later.index < accesses_.size());
  MoveVerdict verdict;
  verdict.why.before = earlier;
  for_operands(graph_, later, [&](ValueId v) {
    if (graph_.value(v).def != earlier) return;
    verdict.why.reason = OrderReason::data;
    verdict.why.value = v;
  });
  verdict.allowed = verdict.why.reason == OrderReason::none && check_memory(earlier, later, &verdict.why) &&
                    check_symbols(earlier, later, &verdict.why) && check_effects(earlier, later, &verdict.why);
  return verdict;
}

bool OrderFacts::check_memory(NodeId earlier, NodeId later, Constraint* why) const {
  auto a = accesses(earlier), b = accesses(later);
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i].alias_class != b[j].alias_class) {
      a[i].alias_class < b[j].alias_class ? ++i : ++j;
    } else if (a[i].write || b[j].write) {
      why->reason = !a[i].write  ? OrderReason::write_after_read
                    : b[j].write ? OrderReason::write_after_write
                                 : OrderReason::read_after_write;
      why->value = alias_.storage(b[j].storage).owner;
      return false;
    } else {
      ++i, ++j;
    }
  }
  return true;
}

bool OrderFacts::check_symbols(NodeId earlier, NodeId later, Constraint* why) const {
  for (StrId s : alias_.binds(earlier))
    if (mentions(later, s)) {
      why->reason = OrderReason::symbol;
      why->symbol = s;
      return false;
    }
  return true;
}

bool OrderFacts::mentions(NodeId n, StrId symbol) const {
  std::vector<StrId> symbols;
  NodeSymbols(program_, &symbols).add_node(graph_, n);
  return std::ranges::find(symbols, symbol) != symbols.end();
}

bool OrderFacts::check_effects(NodeId earlier, NodeId later, Constraint* why) const {
  uint32_t a = alias_.effects(earlier), b = alias_.effects(later);
  if ((a & host_order_) && (b & host_order_)) {
    why->reason = OrderReason::host_sync;
    return false;
  }
  auto groups = scope_ == OrderScope::rank ? alias_.groups(later) : std::span<const GroupId>();
  for (GroupId g : alias_.groups(earlier))
    if (std::binary_search(groups.begin(), groups.end(), g)) {
      why->reason = OrderReason::collective;
      why->group = g;
      return false;
    }
  bool opaque = ((a & kEffectOpaque) && has_order_effect(later)) || ((b & kEffectOpaque) && has_order_effect(earlier));
  if (opaque) why->reason = OrderReason::opaque;
  return !opaque;
}

MoveVerdict OrderFacts::may_move_before(NodeId mover, NodeId position) const {
  if (mover == position || graph_.before(mover, position)) return {};
  for (NodeId n = graph_.previous(mover);; n = graph_.previous(n)) {
    MoveVerdict verdict = may_swap(n, mover);
    if (!verdict || n == position) return verdict;
  }
}

MoveVerdict OrderFacts::may_move_after(NodeId mover, NodeId position) const {
  if (mover == position || graph_.before(position, mover)) return {};
  for (NodeId n = graph_.next(mover);; n = graph_.next(n)) {
    MoveVerdict verdict = may_swap(mover, n);
    if (!verdict) verdict.why.before = n;  // the blocking node
    if (!verdict || n == position) return verdict;
  }
}

std::string explain(const Job& job, const Graph& graph, NodeId mover, const Constraint& why) {
  auto label = [&](NodeId n) { return n ? "%" + std::string(graph.label(n)) : std::string("nothing"); };
  auto value = [&] { return why.value ? "%" + std::string(graph.name(why.value)) : std::string("memory"); };
  std::string a = label(why.before), b = label(mover);
  bool mover_is_first = why.before && graph.before(mover, why.before);
  if (mover_is_first) std::swap(a, b);
  switch (why.reason) {
    case OrderReason::none: return "nothing is in the way of " + label(mover);
    case OrderReason::data: return b + " takes " + value() + ", a result of " + a;
    case OrderReason::read_after_write: return b + " may read the memory of " + value() + ", which " + a + " writes";
    case OrderReason::write_after_read: return b + " may write the memory of " + value() + ", which " + a + " reads";
    case OrderReason::write_after_write: return b + " and " + a + " may both write the memory of " + value();
    case OrderReason::symbol:
      return b + " needs the size " + job.pool->strings.str(why.symbol) + ", which " + a + " defines";
    case OrderReason::host_sync: return b + " and " + a + " both make the host wait or assert, and keep their order";
    case OrderReason::collective:
      return b + " and " + a + " are collectives of one group, @" + group_name(job, why.group);
    case OrderReason::opaque:
      return b + " and " + a + " keep their order: one is an op without a row in the table, the other has effects";
  }
  return {};
}

}  // namespace sg
