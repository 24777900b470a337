#include "libgraph/expr/range_infer.h"

#include <algorithm>
#include <unordered_map>

#include "libgraph/expr/symbol_collector.h"
#include "libgraph/op.h"

namespace sg {

namespace {

constexpr int kRounds = 8;

void add_mentioned(const Graph& g, SymbolCollector* out) {
  out->add_values(g);
  for (NodeId n : g.nodes()) {
    for (const Arg& arg : g.node(n).args)
      arg.walk([out](const Arg& a) {
        if (a.is(ArgKind::expr)) out->add(a.as_expr());
      });
    if (const auto& binds = g.meta(n).binds)
      for (StrId symbol : *binds) out->add(symbol);
  }
}

class Inference {
 public:
  explicit Inference(const Job& job) : job_(job), exprs_(job.pool->exprs), reasons_(job.programs.size()) {}

  RangeInference run() {
    out_.exchanges.reserve(job_.programs.size());  // by_group_ holds pointers into it
    for (const auto& p : job_.programs) held_.insert(p->ranks.begin(), p->ranks.end());
    for (const auto& p : job_.programs) {
      out_.facts.emplace_back(*p);
      out_.exchanges.emplace_back();
      out_.counts.emplace_back();
      SymbolCollector mentioned(*job_.pool, SymbolCollector::Of::all);
      add_mentioned(p->graph, &mentioned);
      collect(p->graph, &out_.exchanges.back());
      for (const auto& nested : p->nested) {
        add_mentioned(nested->graph, &mentioned);
        collect(nested->graph, &out_.exchanges.back());
      }
      out_.used.push_back(mentioned.take());
      by_group_.emplace_back();
      for (const Exchange& e : out_.exchanges.back()) by_group_.back()[e.group].push_back(&e);
    }
    for (size_t i = 0; i < job_.programs.size(); ++i) bound_counts(i);
    bool changed = true;
    for (int round = 0; changed && round < kRounds; ++round) {
      changed = false;
      for (size_t i = 0; i < job_.programs.size(); ++i) changed |= bound_received(i);
    }
    for (size_t i = 0; i < job_.programs.size(); ++i) report(i);
    return std::move(out_);
  }

 private:
  // --- learning ---

  Expr expr_of(const Graph& graph, const Arg& a) const {
    if (a.is(ArgKind::integer)) return exprs_.constant(a.as_int());
    if (a.is(ArgKind::expr)) return a.as_expr();
    if (!a.is(ArgKind::value)) return ExprPool::kInvalid;
    // A capture with concretized sizes records a number here, but the value still depends on the data.
    if (NodeId def = graph.value(a.as_value()).def) {
      const auto& binds = graph.meta(def).binds;
      if (binds && binds->size() == 1 && graph.node(def).result_count == 1) return exprs_.symbol((*binds)[0]);
    }
    const Type& t = graph.type(a.as_value());
    return t.kind == TypeKind::integer && t.has_value ? t.value : ExprPool::kInvalid;
  }

  std::vector<Expr> exprs_of(const Graph& graph, const Arg* list) const {
    std::vector<Expr> out;
    if (list && list->is(ArgKind::list))
      for (const Arg& item : list->items()) out.push_back(expr_of(graph, item));
    return out;
  }

  const Arg* argument(const Node& node, const OpInfo& op, std::string_view name) const {
    StrId key = job_.pool->strings.find(name);
    for (const Arg& a : node.args)
      if (a.key() && a.key() == key) return &a;
    int index = op.param_index(name);
    bool is_positional = index >= 0 && static_cast<size_t>(index) < node.args.size();
    if (!is_positional) return nullptr;
    const Arg& a = node.args[static_cast<size_t>(index)];
    return a.key() ? nullptr : &a;
  }

  void collect(const Graph& graph, std::vector<Exchange>* out) const {
    for (NodeId n : graph.nodes()) {
      const OpInfo* op = graph.op_info(n);
      if (!op || !op->has(kCollective) || op->param_index("input_split_sizes") < 0) continue;
      const Node& node = graph.node(n);
      Exchange e{&graph, n, GroupId(), exprs_of(graph, argument(node, *op, "output_split_sizes")),
                 exprs_of(graph, argument(node, *op, "input_split_sizes"))};
      const Arg* group = argument(node, *op, "group_name");
      if (group && group->is(ArgKind::group)) e.group = group->as_group();
      if (e.group) out->push_back(std::move(e));
    }
  }

  // --- counts of elements that an op finds ---

  void bound_counts(size_t program) {
    const Program& p = *job_.programs[program];
    std::vector<Facts::Bound> bounds;
    for (NodeId n : p.graph.nodes()) {
      const OpInfo* op = p.graph.op_info(n);
      if (!op || !op->has(kBindsSymbol)) continue;
      const Expr elements = elements_searched(p.graph, n);
      if (exprs_.is_invalid(elements)) continue;
      const Interval most = out_.facts[program].range(elements);
      const NodeMeta& meta = p.graph.meta(n);
      for (StrId s : meta.binds ? *meta.binds : default_binds(p, p.graph, n)) {
        out_.counts[program].push_back({s, elements});
        if (!most.has_max() || most.max < 0) continue;
        bounds.push_back({s, {0, most.max}});
        reasons_[program].emplace(s, "%" + std::string(p.graph.label(n)) + " finds at most one per element");
      }
    }
    out_.facts[program].tighten(bounds);
  }

  // The number of elements, or slices, that a search op looks through; invalid for other ops, or if unknown.
  Expr elements_searched(const Graph& graph, NodeId n) const {
    const std::string_view name = graph.op_name(n);
    const bool is_masked = name == "aten.masked_select.default", are_boxes = name == "torchvision.nms.default";
    const bool may_have_dim = name == "aten.unique_consecutive.default" || name == "aten.unique_dim.default";
    if (name != "aten.nonzero.default" && name != "aten._unique2.default" && !is_masked && !are_boxes && !may_have_dim)
      return ExprPool::kInvalid;
    const std::vector<Arg>& args = graph.node(n).args;
    if (args.empty() || !args[0].is(ArgKind::value)) return ExprPool::kInvalid;
    const Type& searched = graph.type(args[0].as_value());
    if (searched.kind != TypeKind::tensor) return ExprPool::kInvalid;
    if (is_masked) {  // the two broadcast against each other
      bool has_mask = args.size() > 1 && args[1].is(ArgKind::value);
      if (!has_mask || graph.type(args[1].as_value()).shape != searched.shape) return ExprPool::kInvalid;
    }
    if (are_boxes) return size_along(searched, 0);
    const Arg* dim = argument(graph.node(n), *graph.op_info(n), "dim");
    if (may_have_dim && dim != nullptr && dim->is(ArgKind::integer)) return size_along(searched, dim->as_int());
    return exprs_.product(searched.shape);
  }

  static Expr size_along(const Type& t, int64_t dim) {
    const auto rank = static_cast<int64_t>(t.shape.size());
    return dim < -rank || dim >= rank ? ExprPool::kInvalid : t.shape[static_cast<size_t>(dim < 0 ? dim + rank : dim)];
  }

  // --- exchanges ---

  // The range of all splits that ranks of the group may send in its n-th exchange; none if not all are known.
  std::optional<Interval> sent_range(GroupId group, size_t n) const {
    if (!holds_all_ranks(group)) return std::nullopt;
    std::optional<Interval> all;
    for (size_t i = 0; i < out_.exchanges.size(); ++i) {
      if (!takes_part(i, group)) continue;
      const Exchange* e = nth(i, group, n);
      if (!e || e->sent.empty()) return std::nullopt;
      for (Expr split : e->sent) {
        if (exprs_.is_invalid(split)) return std::nullopt;
        Interval r = out_.facts[i].range(split);
        all = all ? hull(*all, r) : r;
      }
    }
    return all;
  }

  // Whether the job has a program for every rank that its ranks exchange with on this group.
  bool holds_all_ranks(GroupId group) const {
    if (group.index >= job_.groups.size()) return false;
    if (job_.is_spmd()) return true;
    const std::vector<GroupPart>& parts = job_.groups[group.index].parts;
    return std::all_of(parts.begin(), parts.end(), [&](const GroupPart& part) {
      auto held = [&](uint32_t r) { return held_.count(r) != 0; };
      return std::all_of(part.ranks.begin(), part.ranks.end(), held) ||
             std::none_of(part.ranks.begin(), part.ranks.end(), held);
    });
  }

  bool takes_part(size_t program, GroupId group) const {
    const Program& p = *job_.programs[program];
    if (group.index >= job_.groups.size()) return false;
    if (p.ranks.empty()) return true;
    return std::any_of(p.ranks.begin(), p.ranks.end(),
                       [&](uint32_t r) { return job_.groups[group.index].part_of(r) != nullptr; });
  }

  const Exchange* nth(size_t program, GroupId group, size_t n) const {
    auto it = by_group_[program].find(group);
    return it != by_group_[program].end() && n < it->second.size() ? it->second[n] : nullptr;
  }

  bool bound_received(size_t program) {
    std::unordered_map<GroupId, size_t, IdHash> seen;
    std::vector<Facts::Bound> bounds;
    for (const Exchange& e : out_.exchanges[program]) {
      auto range = sent_range(e.group, seen[e.group]++);
      Interval received = intersection(range.value_or(Interval{}), {0, Interval::kHighest});
      if (received.min > received.max) continue;  // contradictory: reported by the verifier
      std::string reason;
      for (Expr split : e.received) {
        auto symbol = exprs_.as_symbol(split);
        if (!symbol) continue;
        Interval known = out_.facts[program].range_of_symbol(*symbol);
        if (intersection(known, received) == known) continue;
        if (reason.empty()) reason = reason_of(e, received);
        bounds.push_back({*symbol, received});
        reasons_[program].insert_or_assign(*symbol, reason);
      }
      for (Expr split : e.sent)
        if (auto symbol = exprs_.as_symbol(split)) bounds.push_back({*symbol, {0, Interval::kHighest}});
    }
    return out_.facts[program].tighten(bounds);
  }

  std::string reason_of(const Exchange& e, Interval received) const {
    const Group& group = job_.groups[e.group.index];
    return "%" + std::string(e.graph->label(e.node)) + " receives what ranks of group " +
           std::string(job_.pool->strings[group.axis]) + " send: " + print(received);
  }

  // --- result ---

  void report(size_t program) {
    for (const Symbol& s : job_.programs[program]->symbols) {
      Interval now = out_.facts[program].range_of_symbol(s.name);
      if (!now.has_max() && out_.used[program].count(s.name) != 0) out_.unbounded.push_back({program, s.name});
      if (now == Interval::of(s.min, s.max)) continue;
      auto it = reasons_[program].find(s.name);
      std::string reason = it == reasons_[program].end() ? "guards" : it->second;
      out_.tightened.push_back({program, s.name, now, std::move(reason)});
    }
  }

  const Job& job_;
  ExprPool& exprs_;
  RangeInference out_;
  std::unordered_set<uint32_t> held_;                                                        // ranks
  std::vector<std::unordered_map<GroupId, std::vector<const Exchange*>, IdHash>> by_group_;  // by program
  std::vector<std::unordered_map<StrId, std::string, IdHash>> reasons_;                      // by program
};

}  // namespace

RangeInference infer_ranges(const Job& job) { return Inference(job).run(); }

}  // namespace sg
