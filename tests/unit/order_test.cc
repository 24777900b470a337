#include "libgraph/facts/order.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "libgraph/op.h"
#include "tests/support/parse.h"
#include "tests/support/random_job.h"
#include "tests/support/rng.h"

using namespace sg;
using sg::test::parse;

namespace {

// The rules of order.h implemented again, pair by pair, without the analyses: labels spread over values until nothing
// changes.
class OrderOracle {
 public:
  OrderOracle(const Program& program, const Graph& graph) : program_(program), graph_(graph) {
    label_.resize(graph.value_id_limit());
    for (uint32_t v = 0; v < label_.size(); ++v) label_[v] = v;
    for (bool changed = true; changed;) {
      changed = false;
      for (NodeId n : graph.nodes())
        for (auto [a, b] : ties(n)) changed |= tie(a, b);
    }
  }

  bool conflict(NodeId a, NodeId b) const {  // a comes before b
    for (ValueId v : values(b))
      if (graph_.value(v).def == a) return true;
    std::set<uint32_t> wa = written(a), wb = written(b), ra = read(a), rb = read(b);
    if (meets(wa, wb) || meets(wa, rb) || meets(ra, wb)) return true;
    for (StrId s : binds(a))
      if (symbols(b).count(s)) return true;
    if (host(a) && host(b)) return true;
    if (meets(groups(a), groups(b))) return true;
    auto effect = [&](NodeId n) { return opaque(n) || host(n) || !groups(n).empty() || !written(n).empty(); };
    return (opaque(a) && effect(b)) || (opaque(b) && effect(a));
  }

 private:
  using Pair = std::pair<ValueId, ValueId>;

  bool tie(ValueId a, ValueId b) {
    uint32_t low = std::min(label_[a.index], label_[b.index]);
    bool changed = label_[a.index] != low || label_[b.index] != low;
    label_[a.index] = label_[b.index] = low;
    return changed;
  }

  bool has_memory(ValueId v) const {
    TypeKind k = graph_.type(v).kind;
    return k == TypeKind::tensor || k == TypeKind::list || k == TypeKind::opaque || k == TypeKind::unknown;
  }
  std::vector<ValueId> values(NodeId n) const {
    std::vector<ValueId> out;
    for (const Arg& arg : graph_.node(n).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::value)) out.push_back(a.as_value());
      });
    return out;
  }
  struct Passed {
    const Param* param;
    std::vector<ValueId> values;
  };
  std::vector<Passed> passed(NodeId n) const {  // values with memory, by parameter
    const OpInfo* op = graph_.op_info(n);
    std::vector<Passed> out;
    for (size_t i = 0; i < graph_.node(n).args.size(); ++i) {
      const Arg& arg = graph_.node(n).args[i];
      int k = arg.key().is_none() ? static_cast<int>(i) : op->param_index(graph_.pool().strings[arg.key()]);
      Passed p{k >= 0 && static_cast<size_t>(k) < op->params.size() ? &op->params[static_cast<size_t>(k)] : nullptr,
               {}};
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::value) && has_memory(a.as_value())) p.values.push_back(a.as_value());
      });
      out.push_back(p);
    }
    return out;
  }

  // The arguments of the op that result i is, or may be, a view of.
  std::vector<ValueId> sources(NodeId n, uint32_t i) const {
    const OpInfo* op = graph_.op_info(n);
    if (op->results.empty()) return {};
    const ResultInfo& info = op->results[op->returns_list ? 0 : std::min<size_t>(i, op->results.size() - 1)];
    std::vector<ValueId> out;
    for (const Passed& p : passed(n))
      if (info.alias && p.param && p.param->alias == info.alias)
        out.insert(out.end(), p.values.begin(), p.values.end());
    if (op->returns_list && out.size() > 1 && i < out.size()) return {out[i]};
    return out;
  }

  std::vector<Pair> ties(NodeId n) const {
    std::vector<Pair> out;
    const Node& node = graph_.node(n);
    std::vector<ValueId> all;
    for (ValueId v : values(n))
      if (has_memory(v)) all.push_back(v);
    for (uint32_t i = 0; i < node.result_count; ++i)
      if (has_memory(node.result(i)) && is_unknown(n)) all.push_back(node.result(i));
    if (is_unknown(n)) {
      for (ValueId v : all) out.push_back({all[0], v});
      return out;
    }
    for (uint32_t i = 0; i < node.result_count; ++i) {
      if (!has_memory(node.result(i))) continue;
      for (ValueId v : sources(n, i))
        if (!copied(n, v, node.result(i))) out.push_back({v, node.result(i)});
    }
    return out;
  }

  // Reshapes in random jobs are of dense tensors, except after a transpose: this is all that the rule under test is
  // asked.
  bool copied(NodeId n, ValueId from, ValueId to) const {
    if (!graph_.op_info(n)->has(kMayAlias)) return false;
    AliasAnalysis alias(program_, graph_);
    return !alias.may_alias(from, to);
  }

  bool is_unknown(NodeId n) const { return graph_.op_info(n) == nullptr; }
  bool opaque(NodeId n) const {
    const OpInfo* op = graph_.op_info(n);
    return !op || (op->has(kCollective) && groups(n).empty());
  }

  std::set<uint32_t> labels(const std::vector<ValueId>& list) const {
    std::set<uint32_t> out;
    for (ValueId v : list) out.insert(label_[v.index]);
    return out;
  }
  std::set<uint32_t> written(NodeId n) const {
    std::vector<ValueId> out;
    const OpInfo* op = graph_.op_info(n);
    if (!op || op->has(kWait)) {
      for (ValueId v : values(n))
        if (has_memory(v)) out.push_back(v);
      return labels(out);
    }
    for (const Passed& p : passed(n))
      if (p.param && p.param->written) out.insert(out.end(), p.values.begin(), p.values.end());
    return labels(out);
  }
  std::set<uint32_t> read(NodeId n) const {
    const OpInfo* op = graph_.op_info(n);
    if (!op || op->has(kSize)) return {};
    std::vector<ValueId> out;
    if (op->has(kWait)) {  // the arguments of the collective are read until the wait
      NodeId launch = graph_.value(values(n)[0]).def;
      while (launch && graph_.op_info(launch) && graph_.op_info(launch)->has(kView))
        launch = graph_.value(values(launch)[0]).def;
      if (launch && graph_.op_info(launch) && graph_.op_info(launch)->has(kCollective)) {
        auto w = written(launch), r = read(launch);
        for (uint32_t l : w) r.erase(l);
        return r;
      }
      return {};
    }
    bool all_views = graph_.node(n).result_count > 0;
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) {
      ValueId r = graph_.node(n).result(i);
      if (!has_memory(r)) continue;
      auto from = sources(n, i);
      bool view = !from.empty() && (op->has(kView) || op->writes());
      if (!from.empty() && op->has(kMayAlias)) view = AliasAnalysis(program_, graph_).must_alias(from[0], r);
      all_views &= view;
    }
    for (const Passed& p : passed(n)) {
      if (p.param && (p.param->written || (all_views && p.param->alias))) continue;
      out.insert(out.end(), p.values.begin(), p.values.end());
    }
    return labels(out);
  }
  std::vector<StrId> binds(NodeId n) const {
    if (graph_.meta(n).binds) return *graph_.meta(n).binds;
    return default_binds(program_, graph_, n);
  }
  void add_symbols(const Type& t, std::set<StrId>* out) const {
    std::vector<StrId> list;
    for (Expr e : t.shape) graph_.pool().exprs.collect_symbols(e, &list);
    for (Expr e : t.stride) graph_.pool().exprs.collect_symbols(e, &list);
    if (t.kind == TypeKind::tensor && t.offset) graph_.pool().exprs.collect_symbols(t.offset, &list);
    if (t.has_value && t.kind != TypeKind::floating) graph_.pool().exprs.collect_symbols(t.value, &list);
    out->insert(list.begin(), list.end());
    for (TypeId e : t.elements) add_symbols(graph_.pool().types[e], out);
  }
  std::set<StrId> symbols(NodeId n) const {
    std::set<StrId> out;
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) add_symbols(graph_.type(graph_.node(n).result(i)), &out);
    for (const Arg& arg : graph_.node(n).args)
      arg.walk([&](const Arg& a) {
        std::vector<StrId> list;
        if (a.is(ArgKind::expr)) graph_.pool().exprs.collect_symbols(a.as_expr(), &list);
        out.insert(list.begin(), list.end());
      });
    return out;
  }
  bool host(NodeId n) const {
    const OpInfo* op = graph_.op_info(n);
    return !binds(n).empty() || (op && (op->has(kHostSync) || op->has(kAssert)));
  }
  std::set<uint32_t> groups(NodeId n) const {
    std::set<uint32_t> out;
    const OpInfo* op = graph_.op_info(n);
    if (!op || !op->has(kCollective)) return out;
    for (const Arg& a : graph_.node(n).args)
      if (a.is(ArgKind::group)) out.insert(a.as_group().index);
    return out;
  }
  static bool meets(const std::set<uint32_t>& a, const std::set<uint32_t>& b) {
    for (uint32_t x : a)
      if (b.count(x)) return true;
    return false;
  }

  const Program& program_;
  const Graph& graph_;
  std::vector<uint32_t> label_;
};

test::RandomJobOptions small_job() {
  test::RandomJobOptions options;
  options.nodes = 45;
  options.nested = false;  // bodies have their own cases: the oracle does not look into them
  options.ranks_apart = false;
  return options;
}

std::vector<NodeId> schedule_of(const Graph& graph) {
  std::vector<NodeId> out;
  for (NodeId n : graph.nodes()) out.push_back(n);
  return out;
}

}  // namespace

TEST_CASE("the pair relation and the constraints both agree with a naive oracle") {
  size_t conflicts = 0, pairs = 0;
  std::map<OrderReason, size_t> reasons;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Job job = test::random_job(seed, small_job());
    const Program& program = *job.programs[0];
    const Graph& graph = program.graph;
    OrderFacts facts(program, graph);
    OrderOracle oracle(program, graph);
    std::vector<NodeId> order = schedule_of(graph);
    std::vector<std::set<uint32_t>> must(graph.node_id_limit()), closure(graph.node_id_limit());
    for (size_t j = 0; j < order.size(); ++j) {
      for (const Constraint& c : facts.constraints_into(order[j])) {
        INFO("seed " << seed << ": " << explain(job, graph, order[j], c));
        REQUIRE(oracle.conflict(c.before, order[j]));
        closure[order[j].index].insert(c.before.index);
        closure[order[j].index].insert(closure[c.before.index].begin(), closure[c.before.index].end());
      }
      for (size_t i = 0; i < j; ++i) {
        MoveVerdict verdict = facts.may_swap(order[i], order[j]);
        INFO("seed " << seed << ": %" << graph.label(order[i]) << " " << graph.op_name(order[i]) << " and %"
                     << graph.label(order[j]) << " " << graph.op_name(order[j]) << ": "
                     << explain(job, graph, order[j], verdict.why));
        REQUIRE(verdict.allowed == !oracle.conflict(order[i], order[j]));
        ++pairs;
        conflicts += !verdict;
        if (verdict) continue;
        ++reasons[verdict.why.reason];
        must[order[j].index].insert(order[i].index);
        must[order[j].index].insert(must[order[i].index].begin(), must[order[i].index].end());
      }
      REQUIRE(must[order[j].index] == closure[order[j].index]);
    }
  }
  CHECK(conflicts > 1000);
  CHECK(pairs > 4 * conflicts);
  for (OrderReason r :
       {OrderReason::data, OrderReason::read_after_write, OrderReason::write_after_read, OrderReason::write_after_write,
        OrderReason::host_sync, OrderReason::collective, OrderReason::opaque}) {
    INFO("reason " << static_cast<int>(r));
    CHECK(reasons[r] > 0);
  }
}

TEST_CASE("any number of legal moves keeps every pair that the oracle orders") {
  for (uint64_t seed = 100; seed < 115; ++seed) {
    Job job = test::random_job(seed, small_job());
    Graph& graph = job.programs[0]->graph;
    OrderFacts facts(*job.programs[0], graph);
    OrderOracle oracle(*job.programs[0], graph);
    std::vector<NodeId> before = schedule_of(graph);
    std::vector<std::pair<NodeId, NodeId>> ordered;
    for (size_t j = 0; j < before.size(); ++j)
      for (size_t i = 0; i < j; ++i)
        if (oracle.conflict(before[i], before[j])) ordered.push_back({before[i], before[j]});
    test::Rng rng(seed);
    size_t moved = 0;
    for (int k = 0; k < 400; ++k) {
      NodeId a = rng.pick(before), b = rng.pick(before);
      if (a == b) continue;
      if (graph.before(b, a) && facts.may_move_before(a, b)) graph.move_before(a, b), ++moved;
      else if (graph.before(a, b) && facts.may_move_after(a, b)) graph.move_after(a, b), ++moved;
    }
    CHECK(moved > 10);
    for (auto [a, b] : ordered) REQUIRE(graph.before(a, b));
  }
}

TEST_CASE("a verdict says why not") {
  Job job = parse(R"(sg 1.0 job "t" world 2
group @fsdp [0 1]
group @ep [0 1]
device cpu

graph rank *
  symbol u0 data [0, 8]
  input %x : f32[8] "x"
  input %n : i64[] "n"

  forward -
    %a = aten.mul.Scalar(%x, 2.0)                                       : f32[8]
    %b = aten.neg(%a)                                                   : f32[8]
    %w = aten.add_.Scalar(%a, 1.0)                                      : f32[8]
    %c = aten.neg(%a)                                                   : f32[8]
    %u = aten._local_scalar_dense(%n)                                   : int u0
    %e = aten.empty.memory_format([u0])                                 : f32[u0]
    %g1 = _c10d_functional.all_reduce(%x, "sum", @fsdp)                 : f32[8]
    %g2 = _c10d_functional.all_reduce(%x, "sum", @ep)                   : f32[8]
    %g3 = _c10d_functional.all_reduce(%x, "max", @fsdp)                 : f32[8]
    %m = my.mystery()                                                   : f32[8]
    %r1 = aten.rand([4])                                                : f32[4]
    %r2 = aten.rand([4])                                                : f32[4]

  output %c
)");
  const Graph& graph = job.programs[0]->graph;
  OrderFacts facts(*job.programs[0], graph);
  auto why = [&](std::string_view mover, std::string_view position) {
    MoveVerdict v = facts.may_move_before(graph.find_node(mover), graph.find_node(position));
    return v ? std::string("yes") : explain(job, graph, graph.find_node(mover), v.why);
  };
  CHECK(why("b", "a") == "%b takes %a, a result of %a");
  CHECK(why("w", "b") == "%w may write the memory of %a, which %b reads");
  CHECK(why("c", "w") == "%c may read the memory of %a, which %w writes");
  CHECK(why("e", "u") == "%e needs the size u0, which %u defines");
  CHECK(why("g2", "g1") == "yes");
  CHECK(why("g3", "g2") == "yes");
  CHECK(why("g3", "a") == "%g3 and %g1 are collectives of one group, @fsdp");
  CHECK(why("m", "g3") ==
        "%m and %g3 keep their order: one is an op without a row in the table, the other has effects");
  CHECK(why("r2", "a") == "yes");
  MoveVerdict after = facts.may_move_after(graph.find_node("a"), graph.find_node("c"));
  CHECK_FALSE(after);
  CHECK(after.why.before == graph.find_node("b"));
  CHECK(explain(job, graph, graph.find_node("a"), after.why) == "%b takes %a, a result of %a");
}

TEST_CASE("symbols that a body's own bodies use keep a call behind the node that defines them") {
  Job job = parse(R"(sg 1.0 job "t"
device cpu

graph rank *
  symbol u0 data [0, 8]
  input %n : i64[] "n"
  %u = aten._local_scalar_dense(%n) : int u0
  %r, = sg.call(graph:outer, []) : f32[4]
  output %r

graph rank * nested outer
  %a, = sg.call(graph:inner, []) : f32[4]
  output %a

graph rank * nested inner
  %e = aten.ones([u0]) : f32[u0]
  %s = aten.sum(%e) : f32[]
  %f = aten.expand(%s, [4]) : f32[4]
  output %f
)");
  const Graph& graph = job.programs[0]->graph;
  const NodeId u = graph.find_node("u"), r = graph.find_node("r");
  for (OrderScope scope : {OrderScope::rank, OrderScope::job}) {
    OrderFacts facts(*job.programs[0], graph, scope);
    CHECK(facts.may_swap(u, r).why.reason == OrderReason::symbol);
    REQUIRE(facts.constraints_into(r).size() == 1);
    CHECK(facts.constraints_into(r)[0].before == u);
  }
}
