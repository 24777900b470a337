#include "librun/check/value_choice.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libgraph/facts/alias.h"
#include "libgraph/facts/collective_calls.h"
#include "libgraph/facts/needed_nodes.h"
#include "libgraph/facts/recompute_tags.h"
#include "libgraph/job.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"

namespace sg {
namespace {

bool chooses_at_all(const Program& program) {
  auto chooses_in = [](const Graph& graph) {
    for (NodeId n : graph.nodes())
      if (chooses_by_value(graph, n)) return true;
    return false;
  };
  return chooses_in(program.graph) ||
         std::ranges::any_of(program.nested, [&](const auto& nested) { return chooses_in(nested->graph); });
}

bool is_free_product(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  return op && op->has(kContraction) && !keeps_order(SumOrder::forward, graph, n);
}

// A graph with what shares memory in it and what of it has any effect.
struct Examined {
  Examined(const Program& program, const Graph& of) : graph(of), alias(program, of), needed(needed_nodes(of, alias)) {}
  const Graph& graph;
  const AliasAnalysis alias;
  const std::vector<bool> needed;
};

// What a node does itself, or the nested graphs that it calls.
class Deeds {
 public:
  struct Found {
    bool choice = false, free_product = false;
  };

  explicit Deeds(const Program& program) : of_nested_(program.nested.size()) {
    nested_.reserve(program.nested.size());
    for (const auto& nested : program.nested) nested_.emplace_back(program, nested->graph);
  }

  const std::vector<Examined>& nested() const { return nested_; }

  Found of(const Graph& graph, NodeId n) {
    Found out{chooses_by_value(graph, n), is_free_product(graph, n)};
    for (const Arg& arg : graph.node(n).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::graph)) add(of_nested(a.as_graph()), &out);
      });
    return out;
  }

 private:
  static void add(Found more, Found* to) {
    to->choice |= more.choice;
    to->free_product |= more.free_product;
  }

  Found of_nested(NestedId id) {
    std::optional<Found>& known = of_nested_[id.index];
    if (known) return *known;
    known.emplace();  // for a graph that calls itself
    Found all;
    const Examined& body = nested_[id.index];
    for (NodeId n : body.graph.nodes())
      if (body.needed[n.index]) add(of(body.graph, n), &all);
    return *(known = all);
  }

  std::vector<Examined> nested_;
  std::vector<std::optional<Found>> of_nested_;
};

// By value, and by memory, which has many names: a node behind it, as the caller defines that; none = there is none.
class NodesBehind {
 public:
  NodesBehind(const Graph& graph, const AliasAnalysis& alias)
      : graph_(graph), alias_(alias), of_values_(graph.value_id_limit()), of_memory_(alias.storages().size()) {}

  NodeId behind(ValueId v) const {
    const StorageId s = alias_.storage_of(v);
    return s ? of_memory_[alias_.storage(s).alias_class] : of_values_[v.index];
  }
  // Of the operands of `n`: the first that there is.
  NodeId behind_operands(NodeId n) const {
    NodeId out;
    for_operands(graph_, n, [&](ValueId v) {
      if (!out) out = behind(v);
    });
    return out;
  }
  // Puts a node behind the results of `n` and what it writes.
  void put_behind_results(NodeId n, NodeId node) {
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) {
      const ValueId v = graph_.node(n).result(i);
      if (const StorageId s = alias_.storage_of(v)) of_memory_[alias_.storage(s).alias_class] = node;
      else of_values_[v.index] = node;
    }
    for (StorageId s : alias_.writes(n)) of_memory_[alias_.storage(s).alias_class] = node;
  }

 private:
  const Graph& graph_;
  const AliasAnalysis& alias_;
  std::vector<NodeId> of_values_, of_memory_;  // memory: by class of what may share it
};

using Call = std::pair<uint32_t, uint32_t>;  // a group, and which of its launches: the same on all its ranks

// A program of the job, with the launches of its main graph.
struct Part {
  explicit Part(const Program& program) : main(program, program.graph), deeds(program) {
    size_t budget = kMostEvents;
    const CollectiveSequence sequence = collective_sequence(program, &budget);
    is_known = sequence.complete;
    for (const CollectiveEvent& e : sequence.events)
      if (!e.is_wait && e.graph == &program.graph) launches.emplace(e.node, Call(e.group, e.call));
  }

  static constexpr size_t kMostEvents = size_t{1} << 22;
  Examined main;
  Deeds deeds;
  bool is_known;  // which call each launch is
  std::unordered_map<NodeId, Call, IdHash> launches;
};

// `sent`: the calls to which some rank gives what depends on a product that is not of the forward; adds its own.
SumOrder order_in(const Examined& in, Part* part, std::set<Call>* sent) {
  SumOrder out = SumOrder::free;
  NodesBehind not_forward(in.graph, in.alias);  // products, or where a launch brings what depends on some
  for (NodeId n : in.graph.nodes()) {
    if (!in.needed[n.index]) continue;
    bool depends = !not_forward.behind_operands(n).is_none();
    if (const auto launch = part->launches.find(n); launch != part->launches.end() && &in == &part->main) {
      if (depends) sent->insert(launch->second);
      depends = sent->contains(launch->second);
    }
    const Deeds::Found found = part->deeds.of(in.graph, n);
    if (found.choice && depends) return SumOrder::all;
    if (found.choice) out = SumOrder::forward;
    if (depends || found.free_product) not_forward.put_behind_results(n, n);
  }
  return out;
}

}  // namespace

bool chooses_by_value(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  if (!op || !op->has(kChooses)) return false;
  bool by_float = false;
  for_operands(graph, n, [&](ValueId v) {
    const Type& type = graph.type(v);
    by_float |= type.kind == TypeKind::tensor && !is_integral(type.dtype);
  });
  return by_float;
}

std::vector<NodeId> choices_behind(const Graph& graph, const AliasAnalysis& alias) {
  NodesBehind choices(graph, alias);
  for (NodeId n : graph.nodes())
    if (const NodeId choice = chooses_by_value(graph, n) ? n : choices.behind_operands(n))
      choices.put_behind_results(n, choice);
  std::vector<NodeId> out(graph.value_id_limit());
  for (uint32_t i = 0; i < out.size(); ++i) out[i] = choices.behind(ValueId(i));
  return out;
}

SumOrder sum_order_of(const Job& job) {
  if (std::ranges::none_of(job.programs, [](const auto& program) { return chooses_at_all(*program); }))
    return SumOrder::free;
  std::vector<std::unique_ptr<Part>> parts;
  for (const auto& program : job.programs) parts.push_back(std::make_unique<Part>(*program));
  if (job.programs.size() > 1 && !std::ranges::all_of(parts, [](const auto& part) { return part->is_known; }))
    return SumOrder::all;
  std::set<Call> sent;
  for (;;) {  // until no rank learns of more that it receives
    const size_t known = sent.size();
    SumOrder out = SumOrder::free;
    for (const auto& part : parts) {
      out = std::max(out, order_in(part->main, part.get(), &sent));
      for (const Examined& nested : part->deeds.nested()) out = std::max(out, order_in(nested, part.get(), &sent));
    }
    if (out == SumOrder::all || sent.size() == known) return out;
  }
}

namespace {

// The backward of attention computes the forward's scores again. Of large ones in another order the forward's
// logarithms would not be the logarithms.
bool computes_scores_again(const OpInfo* op) { return op && op->param_index("logsumexp") >= 0; }

}  // namespace

bool keeps_order(SumOrder order, const Graph& graph, NodeId n) {
  if (order != SumOrder::forward) return order == SumOrder::all;
  return does_forward_work(graph, n) || computes_scores_again(graph.op_info(n));
}

}  // namespace sg
