#include "libpasses/auto_chunk_plan.h"

#include <algorithm>
#include <unordered_set>

#include "libgraph/infer_sizes.h"
#include "libpasses/auto_chunk_rewrite.h"
#include "libpasses/axis_rules.h"
#include "libpasses/chunk_layout.h"
#include "libpasses/chunk_regions.h"
#include "libpasses/remat_target.h"
#include "libpasses/value_numbers.h"

namespace sg {
namespace {

template <class Fn>
void for_operands(const Graph& graph, NodeId n, const Fn& fn) {
  for (const Arg& arg : graph.node(n).args)
    arg.walk([&](const Arg& a) {
      if (a.is(ArgKind::value)) fn(a.as_value());
    });
}

bool is_tensor(const Graph& graph, ValueId v) { return graph.type(v).kind == TypeKind::tensor; }

class AutoPlanner {
 public:
  AutoPlanner(Program* program, NodeId amplifier, const AutoCut& cut)
      : program_(*program), graph_(program->graph), rewriter_(program), sizes_(captured_sizes(*program)) {
    plan_.amplifier = amplifier, plan_.cut = cut;
    AxisDomain rows;
    rows.size = cut.rows;
    plan_.world.add_domain(rows);
    plan_.elements = elements(graph_.node(amplifier).result(0));
  }

  Result<AutoPlan> run() {
    forget_recomputation();
    grow();
    find_fills();
    SG_TRY(walk());
    SG_TRY(collect_body());
    share_equal_operands();
    SG_TRY(check_body());
    find_results();
    SG_TRY(check_results());
    SG_TRY(find_place());
    return std::move(plan_);
  }

 private:
  AxisState& state(ValueId v) { return plan_.world.states[v.index]; }
  int64_t elements(ValueId v) const { return element_count(graph_.pool(), graph_.type(v), sizes_).value_or(0); }
  bool is_large(ValueId v) const { return is_tensor(graph_, v) && elements(v) > plan_.elements / 2; }
  bool is_large_chunked(ValueId v) { return depends_[v.index] && state(v).kind == AxisKind::along && is_large(v); }
  bool depends(NodeId n) const {
    bool out = n == plan_.amplifier;
    for_operands(graph_, n, [&](ValueId v) { out = out || depends_[v.index]; });
    return out;
  }

  void grow() {
    const size_t values = graph_.value_id_limit(), nodes = graph_.node_id_limit(), known = plan_.world.equal.size();
    plan_.world.states.resize(values), plan_.world.seeds.resize(values);
    depends_.resize(values), unknown_.resize(values);
    for (size_t v = known; v < values; ++v) plan_.world.equal.push_back(ValueId(static_cast<uint32_t>(v)));
    at_.resize(nodes, kNone);
  }

  Error refuse(NodeId n, std::string_view rule, const std::string& why) const {
    Error out{ErrorKind::cannot_apply,
              place_of(program_, graph_, n) + ": " + std::string(graph_.op_name(n)) + " [" + std::string(rule) + "]: " + why, {},
              "the chunks of %" + std::string(graph_.label(plan_.amplifier)) + " reach this node; --best-effort leaves the amplifier whole"};
    if (SourceId source = graph_.node(n).source; source) {
      out.where.file = graph_.pool().strings[graph_.pool().sources[source].file];
      out.where.line = graph_.pool().sources[source].line;
    }
    return out;
  }

  // Memory that is written after it was made; waits do not count.
  std::unordered_set<uint32_t> written_classes(const AliasAnalysis& alias) const {
    std::unordered_set<uint32_t> out;
    for (NodeId n : graph_.nodes()) {
      if (const OpInfo* op = graph_.op_info(n); op != nullptr && op->has(kWait)) continue;
      for (StorageId s : alias.writes(n)) out.insert(alias.storage(s).alias_class);
    }
    return out;
  }

  // Equal now and later.
  static bool are_exchangeable(const AliasAnalysis& alias, const std::unordered_set<uint32_t>& written, ValueId a, ValueId b) {
    for (ValueId v : {a, b})
      if (const StorageId s = alias.storage_of(v); !s.is_none() && written.contains(alias.storage(s).alias_class)) return false;
    return true;
  }

  // A head that is recomputed in the backward is computed once in a chunk.
  void forget_recomputation() {
    const AliasAnalysis alias(program_, graph_);
    const auto written = written_classes(alias);
    const ValueNumbers numbers(graph_, alias, true);
    std::vector<bool> from(graph_.value_id_limit(), false);
    std::vector<NodeId> again;
    for (NodeId n = plan_.amplifier; n; n = graph_.next(n)) {
      bool any = n == plan_.amplifier;
      for_operands(graph_, n, [&](ValueId v) { any = any || from[v.index]; });
      for (uint32_t i = 0; any && i < graph_.node(n).result_count; ++i) from[graph_.node(n).result(i).index] = true;
      const NodeId leader = numbers.leader(n);
      bool same = leader != n && graph_.node(n).result_count > 0 && from[graph_.node(leader).result(0).index];
      for (uint32_t i = 0; same && i < graph_.node(n).result_count; ++i)
        same = are_exchangeable(alias, written, graph_.node(n).result(i), graph_.node(leader).result(i));
      if (same) again.push_back(n);
    }
    for (NodeId n : again)
      for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) graph_.replace_uses(graph_.node(n).result(i), graph_.node(numbers.leader(n)).result(i));
    for (size_t i = again.size(); i-- > 0;)
      if (!is_used(again[i])) graph_.erase(again[i]);
  }

  bool is_used(NodeId n) const {
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
      if (graph_.is_used(graph_.node(n).result(i))) return true;
    return false;
  }

  // Fills are made at the size of a chunk where one is wanted.
  void find_fills() {
    for (NodeId n : graph_.nodes()) mark_fill(n);
  }

  void mark_fill(NodeId n) {
    const OpInfo* op = graph_.op_info(n);
    if (op != nullptr && is_constant_fill(*op) && graph_.node(n).result_count == 1) state(graph_.node(n).result(0)).kind = AxisKind::constant;
  }

  // --- states ---

  Status walk() {
    for (NodeId n = plan_.amplifier; n;) {
      if (!depends(n)) {
        mark_fill(n);
        n = graph_.next(n);
        continue;
      }
      if (n != plan_.amplifier)
        if (auto first = rewriter_.rewrite(n)) {
          grow();
          n = *first;
          continue;
        }
      const NodeId previous = graph_.previous(n);
      auto chunked = visit(n);
      if (!chunked.ok() && n == plan_.amplifier) return std::move(chunked.error());
      if (!chunked.ok() && push_down(n)) {
        n = graph_.next(previous);
        continue;
      }
      note(n, std::move(chunked));
      n = graph_.next(n);
    }
    return ok_status();
  }

  bool push_down(NodeId n) {
    if (graph_.node(n).result_count != 1 || !is_large(graph_.node(n).result(0)) || graph_.previous(n).is_none()) return false;
    const bool done = rewriter_.push_down(n);
    grow();
    return done;
  }

  void note(NodeId n, Result<AutoNode> chunked) {
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) {
      depends_[graph_.node(n).result(i).index] = true;
      unknown_[graph_.node(n).result(i).index] = !chunked.ok();
    }
    at_[n.index] = nodes_.size();
    nodes_.push_back(chunked.ok() ? std::move(*chunked) : AutoNode{n, {}, {}});
    errors_.push_back(chunked.ok() ? std::nullopt : std::optional(std::move(chunked.error())));
  }

  Result<AutoNode> visit(NodeId n) {
    const OpInfo* op = graph_.op_info(n);
    bool known = true;
    for_operands(graph_, n, [&](ValueId v) { known = known && !unknown_[v.index]; });
    if (!known) return refuse(n, "no rule", "what it takes is not chunked");
    if (op == nullptr) return refuse(n, "no rule", "nothing is known about this op, and an operand is chunked");
    if (op->has(kCollective) || op->has(kWait)) return refuse(n, "collective", "it talks to other ranks, once for each chunk");
    if (draws_random(graph_, n)) return refuse(n, "random numbers", "its numbers would be those of the first chunk in every chunk");
    const AutoCut& cut = plan_.cut;
    const Along seed{0, cut.axis, cut.unit};
    if (n == plan_.amplifier) plan_.world.seeds[cut.operand.index] = along_state(seed);
    AxisCall call(&plan_.world, program_, n);
    const AxisRow* row = find_axis_rule(*op);
    const Status done = run_rule(call, row);
    plan_.world.seeds[cut.operand.index] = AxisState();
    if (!done.ok()) return refuse(n, row == nullptr ? "no rule" : row->name, done.error().message);
    AutoNode out{n, std::move(call.edits), std::move(call.slices)};
    if (n == plan_.amplifier) {
      if (call.given.empty() || call.given[0].kind != AxisKind::along) return refuse(n, row->name, "it contracts the axis that is cut");
      if (std::ranges::none_of(out.slices, [&](const SliceWish& s) { return s.value == cut.operand; })) out.slices.push_back({cut.operand, seed});
    }
    for (const AxisState& s : call.given)
      if (s.kind == AxisKind::along && !plan_.world.domains[s.along.domain].is_rows) return refuse(n, row->name, "its result lies in an order that the data decides");
    for (const auto& [v, s] : call.constants) make_fill(v, s);
    for (uint32_t i = 0; i < call.node.result_count; ++i) state(call.node.result(i)) = call.given[i];
    join_producers(&out);
    return out;
  }

  Status run_rule(AxisCall& call, const AxisRow* row) const {
    bool along = false, partial = false, size = false;
    for_operands(graph_, call.id, [&](ValueId v) {
      const AxisState& s = call.state(v);
      if (s.common) return;
      along = along || s.kind == AxisKind::along, partial = partial || s.kind == AxisKind::partial, size = size || s.kind == AxisKind::size;
    });
    if (size && (row == nullptr || !row->takes_sizes)) return call.fail("it takes a number that differs from chunk to chunk");
    if (partial && !along && (row == nullptr || row->rule != axis::same)) return call.op.writes() ? call.fail("it writes a sum over chunks") : axis::partial(call);
    if (row == nullptr) return call.fail("no axis rule says what it does to chunks");
    return row->rule(call);
  }

  void make_fill(ValueId v, const AxisState& s) {
    const NodeId def = graph_.value(v).def;
    state(v) = s;
    AutoNode fill{def, {{static_cast<uint32_t>(graph_.op_info(def)->param_index("size")), s.along.axis, s.along}}, {}};
    joined_.emplace(def, std::move(fill));
  }

  // What is as large as the amplifier's result, and does not depend on it, is made in the body instead of being cut.
  void join_producers(AutoNode* node) {
    std::erase_if(node->slices, [&](const SliceWish& wish) { return join(wish.value, wish.along, 0); });
  }

  bool join(ValueId v, const Along& wanted, int depth) {
    constexpr int kMaxDepth = 64;
    const NodeId def = graph_.value(v).def;
    if (!def || depth > kMaxDepth || depends_[v.index] || !is_large(v)) return false;
    if (auto it = joined_.find(def); it != joined_.end()) return state(v).kind == AxisKind::along && state(v).along == wanted;
    const OpInfo* op = graph_.op_info(def);
    if (op == nullptr || !op->has(kPure) || draws_random(graph_, def) || graph_.node(def).result_count != 1) return false;
    auto node = made_along(def, wanted);
    if (!node) return false;
    std::erase_if(node->slices, [&](const SliceWish& wish) { return join(wish.value, wish.along, depth + 1); });
    joined_.emplace(def, std::move(*node));
    state(v) = along_state(wanted);
    return true;
  }

  // `n` with one of its operands cut so that its result is chunked as wanted.
  std::optional<AutoNode> made_along(NodeId n, const Along& wanted) {
    const AxisRow* row = find_axis_rule(*graph_.op_info(n));
    if (row == nullptr) return std::nullopt;
    std::vector<ValueId> operands;
    for_operands(graph_, n, [&](ValueId v) {
      if (is_tensor(graph_, v)) operands.push_back(v);
    });
    for (ValueId operand : operands)
      for (uint32_t axis = 0; axis < graph_.type(operand).shape.size(); ++axis) {
        const Along seed{wanted.domain, axis, wanted.unit};
        plan_.world.seeds[operand.index] = along_state(seed);
        AxisCall call(&plan_.world, program_, n);
        const bool fits = graph_.type(operand).shape[axis] == call.extent(seed) && row->rule(call).ok() && call.constants.empty() && call.given.size() == 1 &&
                          call.given[0].kind == AxisKind::along && call.given[0].along == wanted && !call.given[0].local;
        plan_.world.seeds[operand.index] = AxisState();
        if (!fits) continue;
        AutoNode out{n, std::move(call.edits), std::move(call.slices)};
        if (std::ranges::none_of(out.slices, [&](const SliceWish& s) { return s.value == operand; })) out.slices.push_back({operand, seed});
        return out;
      }
    return std::nullopt;
  }

  // --- the body ---

  Status collect_body() {
    grow();
    std::vector<bool> leads(nodes_.size(), false);
    for (size_t i = nodes_.size(); i-- > 0;) {
      const Node& node = graph_.node(nodes_[i].node);
      bool in = false;
      for_operands(graph_, nodes_[i].node, [&](ValueId v) { in = in || is_large_chunked(v); });
      for (uint32_t r = 0; r < node.result_count; ++r) {
        in = in || (errors_[i] ? false : is_large_chunked(node.result(r)));
        graph_.for_each_use(node.result(r), [&](Use use) { in = in || (use.user && at_[use.user.index] != kNone && leads[at_[use.user.index]]); });
      }
      leads[i] = in;
    }
    plan_.is_body.assign(graph_.node_id_limit(), false);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!leads[i]) continue;
      if (errors_[i]) return *errors_[i];
      add(std::move(nodes_[i]));
    }
    for (size_t i = 0; i < plan_.body.size(); ++i) add_producers(plan_.body[i].node);
    std::ranges::sort(plan_.body, [&](const AutoNode& a, const AutoNode& b) { return graph_.before(a.node, b.node); });
    return ok_status();
  }

  void add(AutoNode node) {
    plan_.is_body[node.node.index] = true;
    plan_.body.push_back(std::move(node));
  }

  void add_producers(NodeId n) {
    for_operands(graph_, n, [&](ValueId v) {
      const NodeId def = graph_.value(v).def;
      if (!def || plan_.is_body[def.index] || state(v).kind != AxisKind::along) return;
      if (auto it = joined_.find(def); it != joined_.end()) add(it->second);
    });
  }

  bool is_made_in_body(ValueId v) const {
    const NodeId def = graph_.value(v).def;
    return def && plan_.is_body[def.index];
  }

  // What was recomputed for the backward is there already.
  void share_equal_operands() {
    const AliasAnalysis alias(program_, graph_);
    const ValueNumbers numbers(graph_, alias, true);
    const auto written = written_classes(alias);
    for (AutoNode& body : plan_.body) {
      std::vector<std::pair<ValueId, ValueId>> swaps;
      for_operands(graph_, body.node, [&](ValueId v) {
        const NodeId def = graph_.value(v).def;
        if (!def || is_made_in_body(v) || numbers.leader(def) == def) return;
        const ValueId first = graph_.node(numbers.leader(def)).result(graph_.value(v).index);
        if (graph_.value(first).type == graph_.value(v).type && !is_made_in_body(first) && are_exchangeable(alias, written, v, first)) swaps.emplace_back(v, first);
      });
      for (const auto& [v, first] : swaps) {
        graph_.replace_uses_in(body.node, v, first);
        for (SliceWish& wish : body.slices)
          if (wish.value == v) wish.value = first;
      }
    }
  }

  Status check_body() {
    const AliasAnalysis alias(program_, graph_);
    const auto written = written_classes(alias);
    const auto is_written = [&](ValueId v) { return !alias.storage_of(v).is_none() && written.contains(alias.storage(alias.storage_of(v)).alias_class); };
    for (const AutoNode& body : plan_.body) {
      if (alias.effects(body.node) != 0) return refuse(body.node, "effects", "it does more than compute its results");
      const ValueId first = graph_.node(body.node).result_count > 0 ? graph_.node(body.node).result(0) : ValueId();
      if (!first.is_none() && graph_.op_info(body.node)->has(kMayAlias) && is_written(first))
        return refuse(body.node, "memory", "%" + std::string(graph_.name(first)) + " is written, and whether it is a copy may differ from chunk to chunk");
      if (is_joined(body.node) && is_shared(first) && is_written(first))
        return refuse(body.node, "memory", "it is written in chunks, and taken as a whole");
      for (StorageId s : alias.writes(body.node))
        for (StorageId member : alias.class_members(alias.storage(s).alias_class))
          if (const NodeId def = alias.storage(member).def; !def || !plan_.is_body[def.index])
            return refuse(body.node, "memory", "it writes to %" + std::string(graph_.name(alias.storage(member).owner)) + ", which is not a chunk's own");
    }
    return ok_status();
  }

  // Taken by others than the body.
  bool is_shared(ValueId v) const {
    bool out = false;
    graph_.for_each_use(v, [&](Use use) { out = out || !use.user || !plan_.is_body[use.user.index]; });
    return out;
  }

  void find_results() {
    for (const AutoNode& body : plan_.body)
      for (uint32_t i = 0; !is_joined(body.node) && i < graph_.node(body.node).result_count; ++i)
        if (const ValueId v = graph_.node(body.node).result(i); is_shared(v)) plan_.results.push_back(v);
  }

  // Made again in the body; the rest of the step keeps its own.
  bool is_joined(NodeId n) const { return joined_.contains(n); }

  Status check_results() {
    for (ValueId v : plan_.results) {
      const AxisState& s = state(v);
      const NodeId def = graph_.value(v).def;
      const std::string name = "%" + std::string(graph_.name(v));
      if (s.kind == AxisKind::along && (!plan_.world.domains[s.along.domain].is_rows || s.local))
        return refuse(def, "results", name + " lies in an order of each chunk's own, and is needed whole");
      if ((s.kind == AxisKind::along || s.kind == AxisKind::partial) && !axes_in_memory(&graph_.pool(), program_, graph_.type(v)))
        return refuse(def, "results", name + " is needed whole, and has a layout that no new tensor has: make it contiguous");
      if (s.kind == AxisKind::size && !graph_.type(v).value) return refuse(def, "results", name + " is a number of each chunk's own, and is needed whole");
    }
    return ok_status();
  }

  // --- the place ---

  Status find_place() {
    std::vector<uint32_t> position(graph_.node_id_limit(), 0);
    std::vector<NodeId> order;
    for (NodeId n : graph_.nodes()) position[n.index] = static_cast<uint32_t>(order.size()), order.push_back(n);
    uint32_t first = UINT32_MAX, last = 0, needed = 0, earliest = UINT32_MAX;
    for (const AutoNode& body : plan_.body) {
      const uint32_t at = position[body.node.index];
      earliest = std::min(earliest, at);
      if (!is_joined(body.node)) first = std::min(first, at), last = std::max(last, at);
      for_operands(graph_, body.node, [&](ValueId v) {
        if (const NodeId def = graph_.value(v).def; def && !plan_.is_body[def.index]) needed = std::max(needed, position[def.index] + 1);
      });
    }
    const uint32_t place = std::max(first, needed);
    plan_.place = place < order.size() ? order[place] : NodeId();
    for (uint32_t at = first; at < place; ++at)
      if (!plan_.is_body[order[at].index] && at_[order[at].index] != kNone) plan_.behind.push_back(order[at]);
    return check_moves(order, earliest, std::max(last + 1, place));
  }

  // Nodes that change places must not meet in memory; groups keep their own order.
  Status check_moves(const std::vector<NodeId>& order, uint32_t first, uint32_t end) {
    const AliasAnalysis alias(program_, graph_);
    std::vector<bool> is_behind(graph_.node_id_limit(), false);
    for (NodeId n : plan_.behind) is_behind[n.index] = true;
    struct Touched {
      uint8_t groups = 0;
      bool written = false;
    };
    std::unordered_map<uint32_t, Touched> touched;
    bool moves_order = false, stays_order = false;
    for (uint32_t at = first; at < end; ++at) {
      const NodeId n = order[at];
      const bool moved = is_behind[n.index], own = plan_.is_body[n.index];
      auto note = [&](StorageId s, bool writes) {
        Touched& t = touched[alias.storage(s).alias_class];
        t.groups |= own ? 1 : moved ? 2 : 4, t.written = t.written || writes;
      };
      for (StorageId s : alias.reads(n)) note(s, false);
      for (StorageId s : alias.writes(n)) note(s, true);
      const bool ordered = (alias.effects(n) & (kEffectCollective | kEffectWait | kEffectOpaque)) != 0;
      (moved ? moves_order : stays_order) |= ordered;
    }
    for (uint32_t at = first; at < end; ++at)
      for (auto list : {alias.reads(order[at]), alias.writes(order[at])})
        for (StorageId s : list)
          if (const Touched& t = touched[alias.storage(s).alias_class]; t.written && (t.groups & (t.groups - 1)) != 0)
            return refuse(order[at], "memory", "%" + std::string(graph_.name(alias.storage(s).owner)) + " is written between nodes that would change places");
    if (moves_order && stays_order && !plan_.behind.empty())
      return refuse(plan_.behind[0], "collective", "it would change places with a collective");
    return check_written_results(alias);
  }

  // Results are copied out: what is written to them later must not be meant for another.
  Status check_written_results(const AliasAnalysis& alias) {
    if (plan_.results.empty()) return ok_status();
    std::unordered_set<uint32_t> classes;
    for (ValueId v : plan_.results)
      if (const StorageId s = alias.storage_of(v); !s.is_none()) classes.insert(alias.storage(s).alias_class);
    for (NodeId n : graph_.nodes()) {
      if (plan_.is_body[n.index]) continue;
      for (StorageId s : alias.writes(n))
        if (classes.contains(alias.storage(s).alias_class)) return refuse(n, "memory", "it writes to %" + std::string(graph_.name(alias.storage(s).owner)) + ", which is in chunks");
    }
    return ok_status();
  }

  static constexpr size_t kNone = SIZE_MAX;

  Program& program_;
  Graph& graph_;
  ChunkRewriter rewriter_;
  SizeValues sizes_;
  AutoPlan plan_;
  std::vector<bool> depends_, unknown_;              // by value: on the amplifier; its state is not known
  std::vector<size_t> at_;                           // by node: into nodes_
  std::vector<AutoNode> nodes_;                      // all that depends on the amplifier, in schedule order
  std::vector<std::optional<Error>> errors_;         // by nodes_: why it is not chunked
  std::unordered_map<NodeId, AutoNode, IdHash> joined_;
};

}  // namespace

Result<AutoPlan> plan_auto_chunk(Program* program, NodeId amplifier, const AutoCut& cut) { return AutoPlanner(program, amplifier, cut).run(); }

// Whether the op's result is chunked where this axis of an operand is.
static bool keeps_axis(const Program& program, NodeId n, ValueId operand, uint32_t axis, Expr size) {
  const Graph& graph = program.graph;
  AxisWorld world;
  world.states.resize(graph.value_id_limit()), world.seeds.resize(graph.value_id_limit());
  for (uint32_t v = 0; v < graph.value_id_limit(); ++v) world.equal.push_back(ValueId(v));
  AxisDomain rows;
  rows.size = size;
  world.add_domain(rows);
  world.seeds[operand.index] = along_state({0, axis, graph.pool().exprs.constant(1)});
  AxisCall call(&world, program, n);
  const AxisRow* row = find_axis_rule(call.op);
  return row != nullptr && row->rule(call).ok() && !call.given.empty() && call.given[0].kind == AxisKind::along;
}

std::vector<AutoCut> possible_cuts(const Program& program, NodeId amplifier) {
  const Graph& graph = program.graph;
  ExprPool& exprs = graph.pool().exprs;
  const std::vector<bool> from_data = values_from_data(graph);
  std::vector<AutoCut> out;
  for_operands(graph, amplifier, [&](ValueId v) {
    const Type& type = graph.type(v);
    if (type.kind != TypeKind::tensor || !from_data[v.index]) return;
    for (uint32_t axis = 0; axis < type.shape.size(); ++axis) {
      const Expr size = type.shape[axis];
      if (const auto known = exprs.constant_value(size); known && *known < 2) continue;
      if (std::ranges::any_of(out, [&](const AutoCut& c) { return c.operand == v && c.axis == axis; })) continue;
      if (!keeps_axis(program, amplifier, v, axis, size)) continue;
      out.push_back({v, axis, size, exprs.constant(1)});
      // [batch, length] seen as one axis: whole entries of the batch.
      const NodeId def = graph.value(v).def;
      if (axis != 0 || !def || !graph.op_info(def) || !(graph.op_info(def)->has(kView) || graph.op_info(def)->has(kMayAlias)) || !graph.node(def).args[0].is(ArgKind::value)) continue;
      const std::vector<Expr>& before = graph.type(graph.node(def).args[0].as_value()).shape;
      if (before.size() < 2 || before[0] == size) continue;
      const Expr unit = exprs.floordiv(size, before[0]);
      if (exprs.mul(unit, before[0]) == size && exprs.constant_value(before[0]).value_or(2) > 1) out.push_back({v, axis, before[0], unit});
    }
  });
  return out;
}

}  // namespace sg
