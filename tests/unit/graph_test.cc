// The containers of libgraph/graph.*: order, uses and names against a naive model, and how the cost grows.
#include "libgraph/graph.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <ctime>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "libgraph/job.h"
#include "tests/support/linear_time.h"
#include "tests/support/rng.h"

namespace sg {
namespace {

using test::kLinearSeconds;
using test::Rng;
using test::seconds_since;

// What a Graph must do, as plain lists and searches.
struct Model {
  struct ModelNode {
    NodeId id;
    std::vector<ValueId> args, results;
  };
  std::vector<ModelNode> nodes;  // in schedule order
  std::vector<ValueId> inputs, outputs;

  size_t place(NodeId n) const {
    return static_cast<size_t>(std::find_if(nodes.begin(), nodes.end(), [&](auto& m) { return m.id == n; }) -
                               nodes.begin());
  }
  size_t uses(ValueId v) const {
    size_t count = static_cast<size_t>(std::count(outputs.begin(), outputs.end(), v));
    for (const ModelNode& n : nodes) count += static_cast<size_t>(std::count(n.args.begin(), n.args.end(), v));
    return count;
  }
  std::vector<NodeId> users(ValueId v) const {
    std::vector<NodeId> out;
    for (const ModelNode& n : nodes)
      if (std::count(n.args.begin(), n.args.end(), v)) out.push_back(n.id);
    return out;
  }
  std::vector<ValueId> values() const {
    std::vector<ValueId> out = inputs;
    for (const ModelNode& n : nodes) out.insert(out.end(), n.results.begin(), n.results.end());
    return out;
  }
};

// Applies random operations to a Graph and its Model.
class Pair {
 public:
  explicit Pair(uint64_t seed) : rng_(seed), graph_(job_.add_program().graph) {
    for (int i = 0; i < 3; ++i) model_.inputs.push_back(graph_.add_input("in", TypeId(0), {}));
  }

  void step() {
    switch (rng_.below(12)) {
      case 0:
      case 1: return insert(random_position());
      case 2: return insert(graph_.first());  // always at the front
      case 3: return insert(spot_ && graph_.alive(spot_) ? spot_ : spot_ = random_position());
      case 4: return erase();
      case 5:
      case 6: return move();
      case 7: return set_args();
      case 8: return replace();
      case 9: return rename();
      case 10: return outputs();
      default: return inputs();
    }
  }

  void check() const {
    check_order();
    std::set<std::string_view> names;
    for (ValueId v : model_.values()) {
      REQUIRE(graph_.value(v).use_count == model_.uses(v));
      size_t walked = 0;
      graph_.for_each_use(v, [&](Use use) {
        ++walked;
        if (!use.user) REQUIRE(graph_.outputs()[use.output].value == v);
      });
      REQUIRE(walked == model_.uses(v));
      REQUIRE(graph_.users(v) == model_.users(v));
      REQUIRE(names.insert(graph_.name(v)).second);
      REQUIRE(!graph_.name(v).empty());
      REQUIRE(graph_.find_value(graph_.name(v)) == v);
    }
    for (const auto& n : model_.nodes) {
      std::vector<ValueId> read;
      for (const Arg& arg : graph_.node(n.id).args)
        arg.walk([&](const Arg& a) {
          if (a.is(ArgKind::value)) read.push_back(a.as_value());
        });
      REQUIRE(read == n.args);
      REQUIRE(graph_.find_node(graph_.label(n.id)) == n.id);
      ValueId same = graph_.find_value(graph_.label(n.id));
      REQUIRE((!same || graph_.value(same).def == n.id));
    }
    REQUIRE(graph_.outputs().size() == model_.outputs.size());
    for (size_t i = 0; i < model_.outputs.size(); ++i) REQUIRE(graph_.outputs()[i].value == model_.outputs[i]);
    REQUIRE(graph_.inputs().size() == model_.inputs.size());
    for (size_t i = 0; i < model_.inputs.size(); ++i) {
      REQUIRE(graph_.inputs()[i].value == model_.inputs[i]);
      REQUIRE(graph_.value(model_.inputs[i]).index == i);
    }
  }

  const Job& job() const { return job_; }

 private:
  void check_order() const {
    REQUIRE(graph_.node_count() == model_.nodes.size());
    std::vector<NodeId> forward, backward;
    for (NodeId n : graph_.nodes()) forward.push_back(n);
    for (NodeId n = graph_.last(); n; n = graph_.previous(n)) backward.push_back(n);
    std::reverse(backward.begin(), backward.end());
    REQUIRE(forward == backward);
    for (size_t i = 0; i < forward.size(); ++i) {
      REQUIRE(forward[i] == model_.nodes[i].id);
      REQUIRE(graph_.alive(forward[i]));
      if (i > 0) REQUIRE((graph_.before(forward[i - 1], forward[i]) && !graph_.before(forward[i], forward[i - 1])));
    }
  }

  NodeId random_node() { return model_.nodes.empty() ? NodeId() : rng_.pick(model_.nodes).id; }
  NodeId random_position() { return rng_.percent(10) ? NodeId() : random_node(); }
  ValueId random_value() { return rng_.pick(model_.values()); }

  // Values, some of them inside lists, among literals: where uses must be found.
  std::vector<Arg> random_args(std::vector<ValueId>* flat) {
    std::vector<Arg> args;
    for (uint64_t i = rng_.below(4); i-- > 0;) {
      ValueId v = random_value(), also = random_value();
      flat->push_back(v);
      switch (rng_.below(4)) {
        case 0:
        case 1: args.push_back(Arg::value(v)); continue;
        case 2: args.push_back(Arg::slice(Arg::value(v), Arg::value(also), Arg::none())); break;
        default:
          args.push_back(Arg::list({Arg::integer(1), Arg::list({Arg::value(v), Arg::none()}), Arg::value(also)}));
      }
      flat->push_back(also);
    }
    return args;
  }

  void insert(NodeId position) {
    constexpr std::string_view kNames[] = {"", "a", "a_1", "b", "x.0"};
    NodeSpec spec;
    Model::ModelNode entry;
    spec.op = graph_.pool().op("aten.mm.default");
    spec.args = random_args(&entry.args);
    spec.is_tuple = rng_.percent(30);
    spec.result_types.resize(spec.is_tuple ? rng_.below(4) : rng_.below(2), TypeId(0));
    for (size_t i = rng_.below(spec.result_types.size() + 1); i-- > 0;) spec.names.emplace_back(rng_.pick(kNames));
    spec.label = rng_.pick(kNames);
    entry.id = graph_.insert_before(position, spec);
    for (uint32_t i = 0; i < graph_.node(entry.id).result_count; ++i)
      entry.results.push_back(graph_.node(entry.id).result(i));
    REQUIRE(entry.results.size() == spec.result_types.size());
    auto at = position ? static_cast<std::ptrdiff_t>(model_.place(position))
                       : static_cast<std::ptrdiff_t>(model_.nodes.size());
    model_.nodes.insert(model_.nodes.begin() + at, std::move(entry));
  }

  void erase() {
    NodeId n = random_node();
    if (!n) return;
    auto& entry = model_.nodes[model_.place(n)];
    for (ValueId v : entry.results)
      if (model_.uses(v) != 0) return;
    graph_.erase(n);
    REQUIRE(!graph_.alive(n));
    model_.nodes.erase(model_.nodes.begin() + static_cast<std::ptrdiff_t>(model_.place(n)));
  }

  void move() {
    NodeId n = random_node(), position = random_position();
    if (!n) return;
    auto entry = model_.nodes[model_.place(n)];
    if (position && rng_.percent(50)) {
      graph_.move_after(n, position);
      if (n == position) return;
      model_.nodes.erase(model_.nodes.begin() + static_cast<std::ptrdiff_t>(model_.place(n)));
      model_.nodes.insert(model_.nodes.begin() + static_cast<std::ptrdiff_t>(model_.place(position)) + 1, entry);
      return;
    }
    graph_.move_before(n, position);
    if (n == position) return;
    model_.nodes.erase(model_.nodes.begin() + static_cast<std::ptrdiff_t>(model_.place(n)));
    size_t at = position ? model_.place(position) : model_.nodes.size();
    model_.nodes.insert(model_.nodes.begin() + static_cast<std::ptrdiff_t>(at), entry);
  }

  void set_args() {
    NodeId n = random_node();
    if (!n) return;
    std::vector<ValueId> flat;
    graph_.set_args(n, random_args(&flat));
    model_.nodes[model_.place(n)].args = flat;
  }

  void replace() {
    ValueId from = random_value(), to = random_value();
    if (rng_.percent(50)) {
      graph_.replace_uses(from, to);
      std::replace(model_.outputs.begin(), model_.outputs.end(), from, to);
      for (auto& n : model_.nodes) std::replace(n.args.begin(), n.args.end(), from, to);
    } else if (NodeId n = random_node()) {
      graph_.replace_uses_in(n, from, to);
      auto& args = model_.nodes[model_.place(n)].args;
      std::replace(args.begin(), args.end(), from, to);
    }
  }

  void rename() {
    constexpr std::string_view kNames[] = {"a", "a_1", "b", "c", "", "in"};
    std::string_view wish = rng_.pick(kNames);
    NodeId n = random_node();
    bool is_node = n && rng_.percent(50);
    ValueId v = random_value();
    ValueId owner = graph_.find_value(wish);
    NodeId label_owner = graph_.find_node(wish);
    if (is_node) {
      bool taken = owner ? graph_.value(owner).def != n : label_owner && label_owner != n;
      REQUIRE(graph_.relabel(n, wish) == (!wish.empty() && !taken));
      if (!wish.empty() && !taken) REQUIRE(graph_.label(n) == wish);
    } else {
      bool taken = (owner && owner != v) || (!owner && label_owner);
      REQUIRE(graph_.rename(v, wish) == (!wish.empty() && !taken));
      if (!wish.empty() && !taken) REQUIRE(graph_.name(v) == wish);
    }
  }

  void outputs() {
    ValueId v = rng_.percent(20) ? ValueId() : random_value();
    if (model_.outputs.empty() || rng_.percent(30)) {
      Output output;
      output.value = v;
      graph_.add_output(output);
      model_.outputs.push_back(v);
    } else {
      size_t i = rng_.below(model_.outputs.size());
      graph_.set_output_value(i, v);
      model_.outputs[i] = v;
    }
  }

  void inputs() {
    if (rng_.percent(50)) {
      model_.inputs.push_back(graph_.add_input(rng_.percent(50) ? "in" : "", TypeId(0), {}));
      return;
    }
    size_t i = rng_.below(model_.inputs.size());
    if (model_.inputs.size() < 2 || model_.uses(model_.inputs[i]) != 0) return;
    graph_.remove_input(i);
    model_.inputs.erase(model_.inputs.begin() + static_cast<std::ptrdiff_t>(i));
  }

  Rng rng_;
  Job job_;
  Graph& graph_;
  Model model_;
  NodeId spot_;
};

NodeId append(Graph& graph, std::vector<Arg> args = {}, size_t results = 1) {
  NodeSpec spec;
  spec.op = graph.pool().op("aten.add.Tensor");
  spec.args = std::move(args);
  spec.result_types.resize(results, TypeId(0));
  return graph.append(spec);
}

// The whole content of a graph as text, for comparisons.
std::string snapshot(const Graph& graph) {
  std::string out;
  for (const Input& in : graph.inputs()) out += std::string(graph.name(in.value)) + " ";
  for (NodeId n : graph.nodes()) {
    out += "\n" + std::string(graph.label(n)) + " " + std::string(graph.op_name(n));
    for (const Arg& a : graph.node(n).args)
      a.walk([&](const Arg& item) {
        if (item.is(ArgKind::value)) out += " " + std::string(graph.name(item.as_value()));
      });
    for (uint32_t i = 0; i < graph.node(n).result_count; ++i) {
      ValueId v = graph.node(n).result(i);
      out += " -> " + std::string(graph.name(v)) + "*" + std::to_string(graph.value(v).use_count);
    }
  }
  for (const Output& o : graph.outputs()) out += "\n" + (o.value ? std::string(graph.name(o.value)) : "none");
  return out;
}

}  // namespace

TEST_CASE("a graph does what a naive model does") {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    INFO("seed " << seed);
    Pair pair(seed);
    for (int i = 0; i < 500; ++i) {
      pair.step();
      if (i % 50 == 0) pair.check();
    }
    pair.check();
  }
}

TEST_CASE("a copy of a job does not follow its source, nor the other way round") {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Pair pair(seed);
    for (int i = 0; i < 200; ++i) pair.step();
    Job copy(pair.job());
    std::string before = snapshot(copy.programs[0]->graph);
    REQUIRE(before == snapshot(pair.job().programs[0]->graph));
    for (int i = 0; i < 200; ++i) pair.step();
    pair.check();
    CHECK(snapshot(copy.programs[0]->graph) == before);
    std::string source = snapshot(pair.job().programs[0]->graph);
    Graph& graph = copy.programs[0]->graph;
    CHECK(&graph.pool() == copy.pool.get());
    append(graph, {Arg::value(graph.inputs()[0].value)});
    graph.rename(graph.inputs()[0].value, "only_in_the_copy");
    CHECK(snapshot(pair.job().programs[0]->graph) == source);
    CHECK(!pair.job().pool->strings.find("only_in_the_copy"));
  }
}

TEST_CASE("names follow from the wish, the label or the op") {
  Job job;
  Graph& graph = job.add_program().graph;
  NodeSpec spec;
  spec.op = graph.pool().op("aten.split.Tensor");
  spec.result_types.resize(2);
  spec.is_tuple = true;
  NodeId split = graph.append(spec);
  CHECK(graph.label(split) == "split");
  CHECK(graph.name(graph.node(split).result(1)) == "split.1");
  spec.names = {"first"};
  NodeId named = graph.append(spec);
  CHECK(graph.label(named) == "first");
  CHECK(graph.name(graph.node(named).result(1)) == "first.1");
  graph.rename(graph.node(named).result(0), "renamed");
  CHECK(graph.label(named) == "renamed");
  spec.names = {};
  spec.result_types.clear();
  spec.op = graph.pool().op("plain");
  CHECK(graph.label(graph.append(spec)) == "plain");
  CHECK(graph.label(graph.append(spec)) == "plain_1");
  CHECK(!graph.relabel(split, "plain"));
  CHECK(graph.relabel(split, "split.1"));
  CHECK(graph.find_node("split") == NodeId());
}

TEST_CASE("a removed input leaves the outputs that belonged to it") {
  Job job;
  Graph& graph = job.add_program().graph;
  ValueId a = graph.add_input("a", TypeId(0), {}), b = graph.add_input("b", TypeId(0), {});
  for (ValueId of : {a, b}) {
    Output gradient;
    gradient.kind = OutputKind::gradient;
    gradient.of = of;
    graph.add_output(gradient);
  }
  graph.remove_input(0);
  CHECK(graph.outputs()[0].of == ValueId());
  CHECK(graph.outputs()[1].of == b);
  CHECK(graph.find_value("a") == ValueId());
  CHECK(graph.value(b).index == 0);
}

TEST_CASE("nodes may be erased and moved while a loop stands on them") {
  Job job;
  Graph& graph = job.add_program().graph;
  for (int i = 0; i < 10; ++i) append(graph);
  int visited = 0;
  for (NodeId n : graph.nodes()) {
    if (visited++ % 2 == 0) graph.erase(n);
    else graph.move_before(n, graph.first());
  }
  CHECK(visited == 10);
  CHECK(graph.node_count() == 5);
}

TEST_CASE("200,000 users of one value are erased in any order in linear time") {
  for (bool forward : {true, false}) {
    Job job;
    Graph& graph = job.add_program().graph;
    ValueId hub = graph.add_input("hub", TypeId(0), {});
    for (int i = 0; i < 200'000; ++i) append(graph, {Arg::value(hub)});
    auto start = std::clock();
    while (graph.node_count() != 0) graph.erase(forward ? graph.first() : graph.last());
    CHECK(seconds_since(start) < kLinearSeconds);
    CHECK(!graph.is_used(hub));
  }
}

TEST_CASE("half a million insertions at one place keep the order in near-linear time") {
  Job job;
  Graph& graph = job.add_program().graph;
  NodeSpec spec;
  spec.op = graph.pool().op("f");
  NodeId front = graph.append(spec), last = graph.append(spec);
  auto start = std::clock();
  for (int i = 0; i < 250'000; ++i) graph.insert_before(last, spec);  // each after the previous one
  for (int i = 0; i < 250'000; ++i) graph.insert_after(front, spec);  // each before the previous one
  CHECK(seconds_since(start) < kLinearSeconds);
  bool ordered = true;
  for (NodeId n : graph.nodes()) ordered &= !graph.next(n) || graph.before(n, graph.next(n));
  CHECK(ordered);
  CHECK(graph.before(front, last));
}

TEST_CASE("replacing a value with many uses is linear") {
  Job job;
  Graph& graph = job.add_program().graph;
  ValueId a = graph.add_input("a", TypeId(0), {}), b = graph.add_input("b", TypeId(0), {});
  for (int i = 0; i < 200'000; ++i) append(graph, {Arg::value(a), Arg::list({Arg::value(a)})});
  auto start = std::clock();
  for (int i = 0; i < 4; ++i) graph.replace_uses(i % 2 == 0 ? a : b, i % 2 == 0 ? b : a);
  CHECK(seconds_since(start) < kLinearSeconds);
  CHECK(graph.value(a).use_count == 400'000);
}

TEST_CASE("replacing many operands of one node is linear, whatever holds them") {
  Job job;
  Graph& graph = job.add_program().graph;
  constexpr size_t kCount = 100'000;
  const ValueId a = graph.add_input("a", TypeId(0), {});
  ArgList items, entries, args;
  std::vector<ValueId> old;
  for (size_t i = 0; i < 3 * kCount; ++i) {
    old.push_back(graph.add_input("x", TypeId(0), {}));
    (i % 3 == 0 ? items : i % 3 == 1 ? entries : args).push_back(Arg::value(old.back()));
  }
  args.insert(args.begin(), {Arg::list(std::move(items)), Arg::dict(std::move(entries))});
  append(graph, std::move(args));
  const auto start = std::clock();
  for (size_t i = 0; i < old.size(); ++i)
    i % 2 == 0 ? graph.replace_uses(old[i], a) : graph.replace_uses_in(graph.last(), old[i], a);
  CHECK(seconds_since(start) < kLinearSeconds);
  CHECK(graph.value(a).use_count == old.size());
}

}  // namespace sg
