#include "libpasses/chunk_plan.h"

#include <algorithm>

#include "libgraph/dtype.h"
#include "libgraph/expr/sizes.h"
#include "libgraph/expr/symbols.h"
#include "libpasses/axis_rules.h"
#include "libpasses/chunk_memory.h"
#include "libpasses/chunk_regions.h"
#include "libpasses/value_numbers.h"

namespace sg {
namespace {

bool is_cast(const OpInfo& op) { return op.name == "aten._to_copy.default" || op.name == "aten.to.dtype"; }

bool is_cast_up(const Graph& graph, NodeId n) {
  if (!is_cast(*graph.op_info(n))) return false;
  const DType from = graph.type(graph.node(n).args[0].as_value()).dtype, to = graph.type(graph.node(n).result(0)).dtype;
  return is_floating(from) && is_floating(to) && dtype_bytes(to) > dtype_bytes(from);
}

class ChunkPlanner {
 public:
  ChunkPlanner(const Program& program, const ChunkPlanOptions& options, const std::vector<ChunkRegion>& regions,
               const std::vector<uint32_t>& region_of, bool best_effort)
      : program_(program), graph_(program.graph), options_(options), region_of_(region_of), best_effort_(best_effort) {
    plan_.regions = regions;
    find_equal_values();
    plan_.world.states.resize(graph_.value_id_limit());
    plan_.world.settled.assign(graph_.value_id_limit(), false);
    plan_.world.seeds.resize(graph_.value_id_limit());
    plan_.is_body.assign(graph_.node_id_limit(), false);
    plan_.made_in.assign(graph_.value_id_limit(), kNoDomain);
    plan_.full_use.assign(graph_.value_id_limit(), false);
    results_.resize(regions.size());
  }

  // The region that could not be chunked, beside the reason.
  struct Refused {
    uint32_t region = kNoRegion;
    Error error;
  };

  std::optional<Refused> run(const std::vector<std::vector<NodeId>>& nodes, const std::vector<bool>& from_data) {
    for (uint32_t r = 0; r < plan_.regions.size(); ++r) {
      if (!plan_.regions[r].refusal.empty()) continue;
      if (Status s = start_region(r, nodes[r], from_data); !s.ok()) return Refused{r, s.error()};
    }
    for (NodeId n : graph_.nodes())
      if (auto refused = visit(n)) return refused;
    for (NodeId n : fills_)
      if (!plan_.is_body[n.index])
        if (auto refused = use_operands(n)) return refused;
    for (const Output& output : graph_.outputs())
      if (!output.value.is_none())
        if (auto refused = use_whole(output.value, "a result of the step")) return refused;
    std::ranges::sort(plan_.body, [&](const BodyNode& a, const BodyNode& b) { return graph_.before(a.node, b.node); });
    for (uint32_t r = 0; r < plan_.regions.size(); ++r)
      if (plan_.regions[r].refusal.empty() &&
          std::ranges::none_of(plan_.body, [&](const BodyNode& b) { return b.region == r; }))
        return Refused{r, at_region(r, "nothing in it depends on the rows of %" +
                                           std::string(graph_.name(plan_.regions[r].activation)))};
    if (auto bad = find_memory_conflict(program_, plan_))
      return Refused{bad->region, refuse_at(bad->node, "memory", bad->message)};
    return std::nullopt;
  }

  ChunkPlan take() { return std::move(plan_); }

 private:
  void find_equal_values() {
    const AliasAnalysis alias(program_, graph_);
    const ValueNumbers numbers(graph_, alias, true);
    plan_.world.equal.resize(graph_.value_id_limit());
    for (uint32_t v = 0; v < plan_.world.equal.size(); ++v) plan_.world.equal[v] = ValueId(v);
    for (NodeId n : graph_.nodes())
      for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
        plan_.world.equal[graph_.node(n).result(i).index] = graph_.node(numbers.leader(n)).result(i);
  }

  Error refuse_at(NodeId n, std::string_view rule, const std::string& why) const {
    Error out{
        ErrorKind::cannot_apply,
        place_of(program_, graph_, n) + ": " + std::string(graph_.op_name(n)) + " [" + std::string(rule) + "]: " + why,
        {},
        remedy("chunk a smaller module")};
    if (SourceId source = graph_.node(n).source; source) {
      out.where.file = graph_.pool().strings[graph_.pool().sources[source].file];
      out.where.line = graph_.pool().sources[source].line;
    }
    return out;
  }

  std::string remedy(std::string_view other) const {
    return std::string(other) + (best_effort_ ? "" : ", or give --best-effort to leave this one whole");
  }

  Error at_region(uint32_t r, const std::string& why) const {
    return {ErrorKind::cannot_apply,
            "module " + plan_.regions[r].module + ": " + why,
            {},
            remedy("fewer chunks, other modules")};
  }

  Status start_region(uint32_t r, const std::vector<NodeId>& nodes, const std::vector<bool>& from_data) {
    ChunkRegion& region = plan_.regions[r];
    const ValueId v = find_activation(graph_, r, nodes, region_of_, from_data);
    if (v.is_none()) return at_region(r, "no tensor that depends on the data of the step enters it");
    const Type& t = graph_.type(v);
    size_t axis = 0;
    if (options_.along == ChunkAlong::sequence && t.shape.size() > 2) axis = 1;
    if (options_.along == ChunkAlong::tokens && t.shape.size() > 2)
      return at_region(r, "%" + std::string(graph_.name(v)) + " has " + std::to_string(t.shape.size()) +
                              " axes and no axis of tokens: use --along batch or seq");
    const Expr rows = t.shape[axis];
    if (const std::string most = too_few(rows); !most.empty())
      return at_region(r, "axis " + std::to_string(axis) + " of %" + std::string(graph_.name(v)) + " has " + most +
                              ": too few for " + std::to_string(options_.chunks) + " chunks" +
                              (options_.least_rows > 1 ? " of " + std::to_string(options_.least_rows) : ""));
    region.activation = v;
    region.along = {rows_domain(rows), static_cast<uint32_t>(axis), graph_.pool().exprs.constant(1)};
    return ok_status();
  }

  // How many rows there are, where they are too few: by their number, at the sizes of the capture, or at any sizes.
  std::string too_few(Expr rows) const {
    const int64_t wanted = options_.chunks * options_.least_rows;
    const auto known = graph_.pool().exprs.constant_value(rows);
    const auto captured = evaluate_size(graph_.pool(), rows, [&](StrId s) {
      const Symbol* symbol = program_.find_symbol(s);
      return symbol != nullptr && symbol->kind == SymbolKind::input ? symbol->hint : std::nullopt;
    });
    const Interval range = Facts(program_).range(rows);
    if (known) return *known < wanted ? std::to_string(*known) + " rows" : "";
    if (captured && *captured < wanted) return std::to_string(*captured) + " rows at the sizes of the capture";
    return range.has_max() && range.max < wanted ? "at most " + std::to_string(range.max) + " rows" : "";
  }

  uint32_t rows_domain(Expr size) {
    for (uint32_t d = 0; d < plan_.world.domains.size(); ++d)
      if (plan_.world.domains[d].is_rows && plan_.world.domains[d].size == size) return d;
    AxisDomain fresh;
    fresh.size = size;
    return plan_.world.add_domain(fresh);
  }

  // --- walking ---

  template <class Fn>
  void for_operands(NodeId n, const Fn& fn) const {
    for (const Arg& arg : graph_.node(n).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::value)) fn(a.as_value());
      });
  }

  const AxisState& state(ValueId v) const { return plan_.world.state_now(v); }

  uint32_t region_at(NodeId n) const {
    const uint32_t r = region_of_[n.index];
    if (r != kNoRegion) return plan_.regions[r].refusal.empty() ? r : kNoRegion;
    return may_lie_between(n) && leads_back(n) ? region_between(n) : kNoRegion;
  }

  bool may_lie_between(NodeId n) const {
    return region_of_[n.index] == kNoRegion && graph_.node(n).phase == Phase::backward &&
           (graph_.node(n).module.is_none() || graph_.op_name(n) == "aten.add.Tensor");
  }

  // The last addition before a gradient leaves is made once, of wholes: one node for as many as there are chunks.
  bool leads_back(NodeId n) const {
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
      for (NodeId user : graph_.users(graph_.node(n).result(i)))
        if (region_of_[user.index] != kNoRegion || may_lie_between(user)) return true;
    return graph_.op_name(n) != "aten.add.Tensor";
  }

  // What autograd adds within a region has no module, or a strange one: all its tensors are the region's.
  uint32_t region_between(NodeId n) const {
    uint32_t region = kNoRegion;
    bool all = graph_.node(n).result_count > 0 && graph_.op_info(n) != nullptr && graph_.op_info(n)->has(kPure);
    for_operands(n, [&](ValueId v) {
      const uint32_t made = state(v).is_chunked() ? plan_.made_in[v.index] : kNoDomain;
      all = all && made != kNoDomain && (region == kNoRegion || region == made);
      region = made;
    });
    return all ? region : kNoRegion;
  }

  // Live-ins that this region cuts: its activation, and in the backward what has the shape of one of its results.
  void seed(NodeId n, uint32_t r) {
    for (ValueId v : seeded_) plan_.world.seeds[v.index] = AxisState();
    seeded_.clear();
    const ChunkRegion& region = plan_.regions[r];
    for_operands(n, [&](ValueId v) {
      if (state(v).kind != AxisKind::whole || graph_.type(v).kind != TypeKind::tensor) return;
      std::optional<Along> along;
      if (v == region.activation) along = region.along;
      const NodeId def = graph_.value(v).def;
      if (!along && def && graph_.node(def).phase == Phase::backward && region_of_[def.index] != r &&
          graph_.node(n).phase == Phase::backward)
        for (const auto& [shape, result] : results_[r])
          if (shape == graph_.type(v).shape) along = result;
      if (!along) return;
      plan_.world.seeds[v.index] = along_state(*along);
      seeded_.push_back(v);
    });
  }

  std::optional<Refused> visit(NodeId n) {
    const uint32_t r = region_at(n);
    if (r != kNoRegion) {
      seed(n, r);
      bool chunked = !seeded_.empty();
      for_operands(n, [&](ValueId v) { chunked = chunked || (state(v).is_chunked() && !state(v).common); });
      if (chunked) return visit_body(n, r);
      freeze_constants(n);
      mark_constant(n);
      return use_operands(n);
    }
    freeze_constants(n);
    return use_operands(n);
  }

  // What a node outside of all bodies takes, it takes whole.
  std::optional<Refused> use_operands(NodeId n) {
    std::optional<Refused> out;
    for_operands(n, [&](ValueId v) {
      if (!out) out = use_whole(v, "%" + std::string(graph_.label(n)));
    });
    return out;
  }

  void mark_constant(NodeId n) {
    const OpInfo* op = graph_.op_info(n);
    if (op == nullptr || (!is_constant_fill(*op) && !is_iota(*op))) return;
    plan_.world.state(graph_.node(n).result(0)).kind = is_iota(*op) ? AxisKind::iota : AxisKind::constant;
  }

  // A constant that a whole node uses, or writes to, stays whole.
  void freeze_constants(NodeId n) {
    for_operands(n, [&](ValueId v) {
      if (state(v).kind == AxisKind::constant || state(v).kind == AxisKind::iota)
        plan_.world.state(v).kind = AxisKind::whole;
    });
  }

  std::optional<Refused> use_whole(ValueId v, const std::string& user) {
    const AxisState& s = state(v);
    if (!s.is_chunked() || plan_.full_use[v.index]) return std::nullopt;
    const NodeId def = graph_.value(v).def;
    auto refuse = [&](const std::string& why) {
      return Refused{plan_.made_in[v.index],
                     refuse_at(def, "results", why + ", and " + user + " needs the whole of it")};
    };
    if (s.kind == AxisKind::along && !plan_.world.domains[s.along.domain].is_rows)
      return refuse("%" + std::string(graph_.name(v)) + " lies in an order that the data decides");
    if (s.kind == AxisKind::along && s.local)
      return refuse("%" + std::string(graph_.name(v)) + " holds positions of each chunk's own");
    if (s.kind == AxisKind::size && !s.common &&
        (s.along.domain == kNoDomain || !plan_.world.domains[s.along.domain].is_rows))
      return refuse("%" + std::string(graph_.name(v)) + " is a number of each chunk's own");
    plan_.full_use[v.index] = true;
    note_result(v);
    return std::nullopt;
  }

  // What leaves a forward region, whole or in chunks: its gradient has this shape.
  void note_result(ValueId v) {
    const AxisState& s = state(v);
    if (s.kind != AxisKind::along || graph_.node(graph_.value(v).def).phase != Phase::forward) return;
    auto& list = results_[plan_.made_in[v.index]];
    const std::pair result(graph_.type(v).shape, s.along);
    if (std::ranges::find(list, result) == list.end()) list.push_back(result);
  }

  // --- one node of a body ---

  struct Operands {
    bool along = false, partial = false, size = false;
  };
  Operands operands_of(NodeId n) const {
    Operands out;
    for_operands(n, [&](ValueId v) {
      const AxisKind kind = state(v).kind == AxisKind::whole ? plan_.world.seeds[v.index].kind : state(v).kind;
      if (state(v).common) return;
      out.along = out.along || kind == AxisKind::along;
      out.partial = out.partial || kind == AxisKind::partial;
      out.size = out.size || kind == AxisKind::size;
    });
    return out;
  }

  std::optional<Refused> visit_body(NodeId n, uint32_t r) {
    const OpInfo* op = graph_.op_info(n);
    if (op == nullptr)
      return Refused{r, refuse_at(n, "no rule", "nothing is known about this op, and an operand is chunked")};
    const Operands has = operands_of(n);
    for_operands(n, [&](ValueId v) {
      if (state(v).kind == AxisKind::along && plan_.made_in[v.index] != r) note_result(v);
    });
    if (is_constant_fill(*op) && !has.size) {
      mark_constant(n);
      fills_.push_back(n);
      return std::nullopt;
    }
    if (has.partial && !has.along && sums_before(n)) return use_operands(n);
    if (draws_random(graph_, n) && !op->has(kPointwise))
      return Refused{r, refuse_at(n, "random numbers", "its numbers cannot be those of the whole")};
    const AxisRow* row = find_axis_rule(*op);
    AxisCall call(&plan_.world, program_, n);
    Status done = repeats_earlier(&call, row, r) ? ok_status() : run_rule(call, row, has);
    if (!done.ok() && has.partial)
      return visit_with_sums(n, r, row, has,
                             refuse_at(n, row == nullptr ? "no rule" : row->name, done.error().message));
    if (!done.ok()) return Refused{r, refuse_at(n, row == nullptr ? "no rule" : row->name, done.error().message)};
    if (draws_random(graph_, n) && (call.given[0].kind != AxisKind::along || !call.domain(call.given[0].along).is_rows))
      return Refused{r, refuse_at(n, "random numbers", "its numbers cannot be those of the whole")};
    accept(call, r);
    return std::nullopt;
  }

  // No rule takes the sums over chunks: they are added up before the node, which then has whole ones.
  std::optional<Refused> visit_with_sums(NodeId n, uint32_t r, const AxisRow* row, Operands has, Error refusal) {
    if (!has.along) return use_operands(n) ? std::optional(Refused{r, std::move(refusal)}) : std::nullopt;
    if (draws_random(graph_, n)) return Refused{r, std::move(refusal)};
    std::vector<ValueId> sums;
    for_operands(n, [&](ValueId v) {
      if (state(v).kind == AxisKind::partial && std::ranges::find(sums, v) == sums.end()) sums.push_back(v);
    });
    for (ValueId v : sums) plan_.world.settled[v.index] = true;
    has.partial = false;
    AxisCall call(&plan_.world, program_, n);
    if (!run_rule(call, row, has).ok()) {
      for (ValueId v : sums) plan_.world.settled[v.index] = false;
      return Refused{r, std::move(refusal)};
    }
    for (ValueId v : sums) plan_.full_use[v.index] = true;
    accept(call, r);
    return std::nullopt;
  }

  // An order that is computed again (a recomputed sort) is the one that there is: its items are the same.
  bool repeats_earlier(AxisCall* call, const AxisRow* row, uint32_t r) const {
    if (row == nullptr || (row->rule != axis::sort && row->rule != axis::repeat_interleave)) return false;
    const ValueId first = plan_.world.equal[call->result(0).index];
    const NodeId earlier = graph_.value(first).def;
    if (first == call->result(0) || !plan_.is_body[earlier.index] || plan_.made_in[first.index] != r ||
        state(first).kind != AxisKind::along)
      return false;
    if (plan_.world.domains[state(first).along.domain].is_rows) return false;
    if (!same_chunks(call->state(call->tensors()[0]), state(AxisCall(&call->world, program_, earlier).tensors()[0])))
      return false;
    for (uint32_t i = 0; i < call->node.result_count; ++i) call->given.push_back(state(graph_.node(earlier).result(i)));
    return true;
  }

  static bool same_chunks(const AxisState& a, const AxisState& b) {
    return a.kind == b.kind && a.along == b.along && a.source == b.source;
  }

  Status run_rule(AxisCall& call, const AxisRow* row, const Operands& has) const {
    if (has.size && (row == nullptr || !row->takes_sizes))
      return call.fail("it takes a number that differs from chunk to chunk");
    const bool moves =
        row != nullptr && (row->rule == axis::same || row->rule == axis::exchange || row->rule == axis::reduce_ranks ||
                           row->rule == axis::read_number || row->rule == axis::repeat_interleave);
    if (has.partial && !has.along && !moves && !(row != nullptr && row->rule == axis::pointwise && call.op.writes()))
      return tampered(call, axis::partial(call));
    if (row == nullptr) return call.fail("no axis rule says what it does to chunks");
    return tampered(call, row->rule(call));
  }

  Status tampered(AxisCall& call, Status done) const {
    if (done.ok() && options_.tamper) options_.tamper(call);
    return done;
  }

  // Early sums: a gradient is summed where it is first a sum over chunks, unless a cast to a wider type comes first.
  bool sums_before(NodeId n) const {
    if (!options_.early_sums || graph_.node(n).phase != Phase::backward) return false;
    bool counts = false;
    for_operands(n, [&](ValueId v) { counts = counts || !state(v).source.is_none(); });
    if (counts) return false;
    for (NodeId at = n;;) {
      const OpInfo* op = graph_.op_info(at);
      if (op == nullptr) return true;
      if (is_cast_up(graph_, at)) return false;
      if ((!op->has(kView) && !is_cast(*op)) || op->has(kWait) || graph_.node(at).result_count != 1) return true;
      const std::vector<NodeId> users = graph_.users(graph_.node(at).result(0));
      if (users.size() != 1 || graph_.value(graph_.node(at).result(0)).use_count != 1) return true;
      at = users[0];
    }
  }

  void accept(AxisCall& call, uint32_t r) {
    for (const auto& [v, s] : call.constants) make_in_chunks(v, s, r);
    BodyNode body;
    body.node = call.id, body.region = r;
    body.edits = std::move(call.edits), body.slices = std::move(call.slices), body.words = std::move(call.words);
    body.settles = std::move(call.settles), body.share = call.share, body.accumulates = call.accumulates;
    for_operands(call.id, [&](ValueId v) {
      if (plan_.world.settled[v.index]) body.whole_reads.push_back(v);
    });
    for (ValueId v : seeded_)
      if (std::ranges::none_of(body.slices, [&](const SliceWish& s) { return s.value == v; }))
        body.slices.push_back({v, plan_.world.seeds[v.index].along});
    for (uint32_t i = 0; i < call.node.result_count; ++i) {
      const ValueId result = call.node.result(i);
      if (graph_.type(result).kind == TypeKind::none) continue;  // not asked for
      plan_.world.state(result) = call.given[i];
      plan_.made_in[result.index] = r;
    }
    add_body(std::move(body));
  }

  void make_in_chunks(ValueId v, const AxisState& s, uint32_t r) {
    const NodeId def = graph_.value(v).def;
    plan_.world.state(v) = s;
    plan_.made_in[v.index] = r;
    BodyNode body;
    body.node = def, body.region = r;
    const OpInfo* op = graph_.op_info(def);
    if (s.local) body.edits.push_back({0, std::nullopt, s.along});
    else body.edits.push_back({static_cast<uint32_t>(op->param_index("size")), s.along.axis, s.along});
    add_body(std::move(body));
  }

  void add_body(BodyNode body) {
    plan_.is_body[body.node.index] = true;
    plan_.body.push_back(std::move(body));
  }

  const Program& program_;
  const Graph& graph_;
  const ChunkPlanOptions& options_;
  const std::vector<uint32_t>& region_of_;
  const bool best_effort_;  // was given: nobody is told to give it
  ChunkPlan plan_;
  std::vector<NodeId> fills_;    // with chunked operands; whole unless they are wanted in chunks
  std::vector<ValueId> seeded_;  // operands of the node at hand
  std::vector<std::vector<std::pair<std::vector<Expr>, Along>>> results_;  // by region: results that are concatenated
};

// Leaves regions whole that launch no all-to-all; false when none is left.
bool leave_without_exchange(const Graph& graph, const std::vector<std::vector<NodeId>>& nodes,
                            std::vector<ChunkRegion>* regions) {
  bool any = false;
  for (size_t r = 0; r < regions->size(); ++r) {
    const bool exchanges = std::ranges::any_of(
        nodes[r], [&](NodeId n) { return graph.op_name(n) == "_c10d_functional.all_to_all_single.default"; });
    if (!exchanges) (*regions)[r].refusal = "it exchanges no tokens";
    any = any || exchanges;
  }
  return any;
}

}  // namespace

Result<ChunkPlan> plan_chunks(const Program& program, const ChunkPlanOptions& options, std::vector<Error>* refused) {
  const Graph& graph = program.graph;
  std::vector<uint32_t> region_of;
  std::vector<ChunkRegion> regions = find_regions(graph, options.modules, &region_of);
  if (regions.empty())
    return Error{ErrorKind::cannot_apply,
                 "--modules " + options.modules.text() + " names no module of the graph",
                 {},
                 "sg-stat --by module lists them"};
  std::vector<std::vector<NodeId>> nodes(regions.size());
  for (NodeId n : graph.nodes())
    if (region_of[n.index] != kNoRegion) nodes[region_of[n.index]].push_back(n);
  if (options.only_exchanges && !leave_without_exchange(graph, nodes, &regions))
    return Error{ErrorKind::cannot_apply,
                 "no module of " + options.modules.text() + " exchanges tokens between ranks",
                 {},
                 "--modules chunks modules without an all-to-all"};
  const std::vector<bool> from_data = values_from(graph, InputKind::user);
  for (;;) {
    ChunkPlanner planner(program, options, regions, region_of, refused != nullptr);
    auto stopped = planner.run(nodes, from_data);
    if (!stopped) return planner.take();
    if (refused == nullptr || stopped->region >= regions.size()) return std::move(stopped->error);
    regions[stopped->region].refusal = stopped->error.message;
    refused->push_back(std::move(stopped->error));
  }
}

}  // namespace sg
