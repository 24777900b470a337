#include "libgraph/facts/collective_roles.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "libgraph/facts/consumers.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"

namespace sg {
namespace {

constexpr std::string_view kGather = "_c10d_functional.all_gather_into_tensor.default";
constexpr std::string_view kScatter = "_c10d_functional.reduce_scatter_tensor.default";
constexpr std::string_view kReduce = "_c10d_functional.all_reduce.default";
constexpr std::string_view kExchange = "_c10d_functional.all_to_all_single.default";

// Ops without a trait that says so which move elements from one place to another.
constexpr std::string_view kMovers[] = {"aten.cat.default",
                                        "aten.stack.default",
                                        "aten.constant_pad_nd.default",
                                        "aten.view_copy.default",
                                        "aten.permute_copy.default",
                                        "aten.split_with_sizes_copy.default",
                                        "aten.slice_backward.default",
                                        "aten.select_backward.default"};

// What a value is computed from.
enum class Origin : uint8_t { constants, parameters, other };

// A position after the end of the schedule; also "no index".
constexpr uint32_t kNever = 0xFFFFFFFFu;

// Rounds in which sums of reductions settle; sums that have not settled by then are left out.
constexpr int kMaxRounds = 8;

class RoleFinder {
 public:
  RoleFinder(const Program& program, const Graph& graph)
      : graph_(graph),
        alias_(program, graph),
        origin_(graph.value_id_limit(), Origin::other),
        consumes_(find_consumers(graph, alias_)),
        leads_(graph.node_id_limit()),
        barred_(graph.node_id_limit()),
        is_consumed_(graph.node_id_limit()),
        position_(graph.node_id_limit()),
        chain_of_(graph.node_id_limit(), kNever),
        seen_by_(graph.node_id_limit()) {}

  void find(std::vector<CollectiveChain>* chains, std::vector<NodeId>* exchanges) {
    find_writes();
    find_origins();
    find_gradient_ends();
    find_consumed();
    for (NodeId n : graph_.nodes()) {
      const OpInfo* op = graph_.op_info(n);
      if (op == nullptr || !op->has(kCollective)) continue;
      if (op->name == kExchange) exchanges->push_back(n);
      if (op->name == kGather) add_unshard(n, chains);
      if (is_reduction(n) && leads_[n.index] && !is_consumed_[n.index]) add(reduction(n), chains);
    }
    count_reductions_behind(chains);
  }

 private:
  // --- facts about the whole graph ---

  // Finds the first and the last write to the memory of each alias class; writes by waits do not count.
  void find_writes() {
    uint32_t classes = 0;
    for (const Storage& s : alias_.storages()) classes = std::max(classes, s.alias_class + 1);
    first_write_.assign(classes, kNever);
    last_write_.assign(classes, 0);
    uint32_t at = 0;
    for (NodeId n : graph_.nodes()) {
      position_[n.index] = ++at;
      const OpInfo* op = graph_.op_info(n);
      if (op != nullptr && op->has(kWait)) continue;
      for (StorageId s : alias_.writes(n)) {
        uint32_t& first = first_write_[alias_.storage(s).alias_class];
        first = std::min(first, at);
        last_write_[alias_.storage(s).alias_class] = at;
      }
    }
  }

  bool is_written_before(ValueId v, NodeId n) const {
    const StorageId s = alias_.storage_of(v);
    return !s.is_none() && first_write_[alias_.storage(s).alias_class] < position_[n.index];
  }

  // Whether n itself or a later node writes v's memory.
  bool is_written_from(ValueId v, NodeId n) const {
    const StorageId s = alias_.storage_of(v);
    return !s.is_none() && last_write_[alias_.storage(s).alias_class] >= position_[n.index];
  }

  bool speaks_of_symbols(NodeId n) const {
    bool out = false;
    for (const Arg& arg : graph_.node(n).args)
      arg.walk([&](const Arg& a) { out |= a.is(ArgKind::expr) && !graph_.pool().exprs.is_constant(a.as_expr()); });
    return out;
  }

  void find_origins() {
    for (const Input& input : graph_.inputs())
      if (input.kind == InputKind::parameter) origin_[input.value.index] = Origin::parameters;
    for (NodeId n : graph_.nodes()) {
      const OpInfo* op = graph_.op_info(n);
      const bool keeps_origin = is_timeless(graph_, n) || (op != nullptr && (op->has(kWait) || op->name == kGather));
      Origin out = keeps_origin && !speaks_of_symbols(n) ? Origin::constants : Origin::other;
      for_operands(graph_, n, [&](ValueId v) { out = std::max(out, origin_[v.index]); });
      for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) origin_[graph_.node(n).result(i).index] = out;
    }
  }

  bool is_reduction(NodeId n) const {
    const OpInfo* op = graph_.op_info(n);
    return op != nullptr && (op->name == kScatter || op->name == kReduce);
  }

  size_t tensor_operands(NodeId n) const {
    size_t out = 0;
    for_operands(graph_, n, [&](ValueId) { ++out; });
    return out;
  }

  // The reduction or pure op that certainly made the memory that v lies in; none if there is no such node.
  NodeId maker_behind(ValueId v) const {
    const StorageId s = alias_.storage_of(v);
    if (s.is_none() || !alias_.storage(s).certain) return {};
    const NodeId def = alias_.storage(s).def;
    return def && (is_reduction(def) || is_timeless(graph_, def)) ? def : NodeId();
  }

  // Whether n writes element by element, and only into memory made by such makers.
  bool sums_up(NodeId n) const {
    const OpInfo* op = graph_.op_info(n);
    if (op == nullptr || !op->writes() || !op->has(kPointwise) || draws_random(graph_, n) || op->has(kCollective))
      return false;
    return std::ranges::all_of(alias_.writes(n),
                               [&](StorageId s) { return bool(maker_behind(alias_.storage(s).owner)); });
  }

  // Whether what n makes of a gradient is still that, element by element: moved, cast, scaled or added up. What mixes
  // elements, as products, sums and norms do, makes gradients of activations into those of what lies behind.
  bool passes_on(NodeId n) const {
    const OpInfo* op = graph_.op_info(n);
    if (!is_timeless(graph_, n) || op->has(kContraction) || op->has(kReduction)) return false;
    return op->has(kView) || op->has(kMayAlias) || op->has(kPointwise) || tensor_operands(n) == 0 ||
           std::ranges::find(kMovers, op->name) != std::end(kMovers);
  }

  bool may_run_later(NodeId n) const {
    const OpInfo* op = graph_.op_info(n);
    if (op == nullptr || barred_[n.index] || speaks_of_symbols(n)) return false;
    return is_reduction(n) || op->has(kWait) || passes_on(n) || sums_up(n);
  }

  // is_consumed_[n]: n depends on a consumer of a reduction that leads to gradients.
  void find_consumed() {
    std::vector<bool> is_reduced(graph_.node_id_limit());
    for (NodeId n : graph_.nodes()) {
      bool reduced = is_reduction(n) && leads_[n.index], consumed = false;
      for_operands(graph_, n, [&](ValueId v) {
        const NodeId def = graph_.value(v).def;
        if (!def) return;
        reduced |= is_reduced[def.index], consumed |= is_consumed_[def.index];
      });
      is_reduced[n.index] = reduced;
      is_consumed_[n.index] = consumed || (reduced && consumes_[n.index]);
    }
  }

  // leads_[n]: n contributes to a gradient, and its results reach only gradients and consumers, through nodes that may
  // run at any later time. If n or a later node writes memory that n reads, a maker that leads too must have made that
  // memory; its writers then keep their order.
  void find_gradient_ends() {
    bool stable = false;
    for (int round = 0; !stable; ++round) {
      std::vector<bool> read_on = read_by_outputs();
      for (NodeId n = graph_.last(); n; n = graph_.previous(n)) {
        leads_[n.index] = !consumes_[n.index] && may_run_later(n) && ends_as_gradients(n, read_on);
        if (leads_[n.index]) for_operands(graph_, n, [&](ValueId v) { mark(v, &read_on); });
      }
      stable = true;
      for (NodeId n : graph_.nodes()) {
        if (!leads_[n.index]) continue;
        for_operands(graph_, n, [&](ValueId v) {
          if (!is_written_from(v, n)) return;
          const NodeId owner = maker_behind(v);
          if (round < kMaxRounds && owner && leads_[owner.index]) return;
          barred_[n.index] = true, stable = false;
        });
      }
    }
  }

  // By alias class: whether it holds a gradient that is an output.
  std::vector<bool> read_by_outputs() const {
    std::vector<bool> out(first_write_.size());
    for (const Output& output : graph_.outputs())
      if (output.kind == OutputKind::gradient && output.value) mark(output.value, &out);
    return out;
  }

  void mark(ValueId v, std::vector<bool>* classes) const {
    const StorageId s = alias_.storage_of(v);
    if (!s.is_none()) (*classes)[alias_.storage(s).alias_class] = true;
  }

  // read_on: by alias class, whether a later node that leads to gradients reads it. This makes a write count whose
  // result is not used by name.
  bool ends_as_gradients(NodeId n, const std::vector<bool>& read_on) const {
    bool ends = std::ranges::any_of(alias_.writes(n), [&](StorageId s) {
      return graph_.op_info(n)->writes() && read_on[alias_.storage(s).alias_class];
    });
    bool only = true;
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
      graph_.for_each_use(graph_.node(n).result(i), [&](Use use) {
        const bool leads =
            use.user ? leads_[use.user.index] : graph_.outputs()[use.output].kind == OutputKind::gradient;
        ends |= leads, only &= leads || (use.user && consumes_[use.user.index]);
      });
    return ends && only;
  }

  // --- one chain ---

  void add(CollectiveChain chain, std::vector<CollectiveChain>* chains) {
    chain_of_[chain.launch.index] = static_cast<uint32_t>(chains->size());
    chains->push_back(std::move(chain));
  }

  void add_unshard(NodeId n, std::vector<CollectiveChain>* chains) {
    if (origin_[graph_.node(n).result(0).index] != Origin::parameters) return;
    std::vector<NodeId> behind = makers(n);
    if (!reads_what_was(n, behind)) return;
    add(unshard(n, std::move(behind), *chains), chains);
  }

  NodeId only_wait(NodeId launch) const {
    const NodeId user = graph_.only_user(graph_.node(launch).result(0));
    const OpInfo* op = user ? graph_.op_info(user) : nullptr;
    return op != nullptr && op->has(kWait) ? user : NodeId();
  }

  // All nodes that n depends on, back to the inputs, in schedule order.
  std::vector<NodeId> makers(NodeId n) {
    std::vector<NodeId> out, stack = {n};
    while (!stack.empty()) {
      const NodeId at = stack.back();
      stack.pop_back();
      for_operands(graph_, at, [&](ValueId v) {
        const NodeId def = graph_.value(v).def;
        if (!def || seen_by_[def.index] == n) return;
        seen_by_[def.index] = n;
        out.push_back(def), stack.push_back(def);
      });
    }
    sort_by_schedule(&out);
    return out;
  }

  void sort_by_schedule(std::vector<NodeId>* nodes) const {
    std::ranges::sort(*nodes, [&](NodeId a, NodeId b) { return position_[a.index] < position_[b.index]; });
  }

  // Whether nothing that n depends on is written before n.
  bool reads_what_was(NodeId n, std::span<const NodeId> behind) const {
    bool unwritten = true;
    auto look = [&](NodeId at) { for_operands(graph_, at, [&](ValueId v) { unwritten &= !is_written_before(v, n); }); };
    look(n);
    for (NodeId maker : behind) look(maker);
    return unwritten;
  }

  CollectiveChain unshard(NodeId n, std::vector<NodeId> behind, const std::vector<CollectiveChain>& earlier) const {
    CollectiveChain out{CollectiveRole::unshard, n, only_wait(n), std::move(behind), {}, {}, {}, 0};
    auto look = [&](NodeId at) {
      for_operands(graph_, at, [&](ValueId v) {
        if (!graph_.value(v).def) out.parameters.push_back(graph_.value(v).index);
      });
    };
    look(n);
    for (NodeId maker : out.before) {
      look(maker);
      if (uint32_t c = chain_of_[maker.index]; c != kNever) out.depth = std::max(out.depth, earlier[c].depth + 1);
    }
    sort_unique(&out.parameters);
    if (out.wait) out.after = views_behind(out.wait);
    return out;
  }

  bool is_relabelling(NodeId n) const {
    const OpInfo* op = graph_.op_info(n);
    if (op == nullptr || !is_timeless(graph_, n) || tensor_operands(n) != 1 || graph_.node(n).result_count != 1)
      return false;
    return op->has(kView) || op->has(kMayAlias) || op->name == "aten._to_copy.default" ||
           op->name == "aten.constant_pad_nd.default";
  }

  std::vector<NodeId> views_behind(NodeId n) const {
    std::vector<NodeId> out;
    for (;;) {
      const std::vector<NodeId> users = graph_.users(graph_.node(n).result(0));
      if (users.size() != 1 || !is_relabelling(users[0])) return out;
      out.push_back(n = users[0]);
    }
  }

  // A cast, a view, or a scaling by a number.
  bool prepares(NodeId n) const {
    const OpInfo* op = graph_.op_info(n);
    const bool scales = op != nullptr && (op->name == "aten.mul.Tensor" || op->name == "aten.div.Tensor") &&
                        is_timeless(graph_, n) && tensor_operands(n) == 1;
    return is_relabelling(n) || scales;
  }

  CollectiveChain reduction(NodeId n) {
    CollectiveChain out{CollectiveRole::reduce, n, only_wait(n), {}, {}, {}, {}, 0};
    NodeId at = n;
    for (;;) {
      ValueId v;
      for_operands(graph_, at, [&](ValueId operand) { v = operand; });
      at = graph_.value(v).def;
      if (!at || graph_.value(v).use_count != 1 || !prepares(at)) break;
      out.before.insert(out.before.begin(), at);
    }
    std::vector<NodeId> stack = {n};
    while (!stack.empty()) {
      const NodeId from = stack.back();
      stack.pop_back();
      for (uint32_t i = 0; i < graph_.node(from).result_count; ++i)
        graph_.for_each_use(graph_.node(from).result(i), [&](Use use) {
          if (!use.user) return out.parameters.push_back(parameter_of(use.output));
          if (seen_by_[use.user.index] == n) return;
          seen_by_[use.user.index] = n;
          if (leads_[use.user.index]) out.after.push_back(use.user), stack.push_back(use.user);
          else if (!out.consumer || graph_.before(use.user, out.consumer)) out.consumer = use.user;
        });
    }
    std::erase(out.after, out.wait);
    sort_by_schedule(&out.after);
    std::erase(out.parameters, kNever);
    sort_unique(&out.parameters);
    return out;
  }

  // The graph input that an output is the gradient of.
  uint32_t parameter_of(uint32_t output) const {
    const ValueId of = graph_.outputs()[output].of;
    return of && !graph_.value(of).def ? graph_.value(of).index : kNever;
  }

  static void sort_unique(std::vector<uint32_t>* list) {
    std::ranges::sort(*list);
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }

  void count_reductions_behind(std::vector<CollectiveChain>* chains) const {
    for (size_t i = chains->size(); i-- > 0;) {
      CollectiveChain& chain = (*chains)[i];
      if (chain.role != CollectiveRole::reduce) continue;
      for (NodeId n : chain.after)
        if (uint32_t c = chain_of_[n.index]; c != kNever) chain.depth = std::max(chain.depth, (*chains)[c].depth + 1);
    }
  }

  const Graph& graph_;
  AliasAnalysis alias_;
  std::vector<Origin> origin_;                      // by value
  std::vector<bool> consumes_;                      // by node
  std::vector<bool> leads_, barred_, is_consumed_;  // by node
  std::vector<uint32_t> position_;                  // by node; from 1
  std::vector<uint32_t> first_write_, last_write_;  // by alias class
  std::vector<uint32_t> chain_of_;                  // by launch
  std::vector<NodeId> seen_by_;                     // by node: the launch whose makers were collected last
};

bool give_role(Graph* graph, NodeId n, CollectiveRole role) {
  NodeMeta meta = graph->meta(n);
  if (meta.collective.role == role) return false;
  meta.collective.role = role;
  graph->set_meta(n, std::move(meta));
  return true;
}

bool give_step(Graph* graph, NodeId n, EpStep step) {
  NodeMeta meta = graph->meta(n);
  if (meta.ep_step != EpStep::none) return false;
  meta.ep_step = step;
  graph->set_meta(n, std::move(meta));
  return true;
}

}  // namespace

bool is_exchange(const Graph& graph, NodeId n) { return graph.op_name(n) == kExchange; }

CollectiveRoles::CollectiveRoles(const Program& program, const Graph& graph) {
  RoleFinder(program, graph).find(&chains_, &exchanges_);
}

size_t store_roles(Graph* graph, const CollectiveRoles& roles) {
  size_t changes = 0;
  for (const CollectiveChain& chain : roles.chains()) {
    for (NodeId n : chain.before) changes += give_role(graph, n, chain.role);
    for (NodeId n : chain.after) changes += give_role(graph, n, chain.role);
    changes += give_role(graph, chain.launch, chain.role);
    if (chain.wait) changes += give_role(graph, chain.wait, chain.role);
  }
  for (NodeId n : roles.exchanges()) {
    const bool counts = is_integral(graph->type(graph->node(n).result(0)).dtype);
    changes += give_step(graph, n, counts ? EpStep::count_exchange : EpStep::token_exchange);
    for (NodeId user : graph->users(graph->node(n).result(0))) {
      const OpInfo* op = graph->op_info(user);
      if (!counts && op != nullptr && op->has(kWait)) changes += give_step(graph, user, EpStep::token_exchange_wait);
    }
  }
  return changes;
}

}  // namespace sg
