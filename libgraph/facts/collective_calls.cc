#include "libgraph/facts/collective_calls.h"

#include "libgraph/facts/transfer.h"
#include "libgraph/op.h"

namespace sg {
namespace {

constexpr int kMaxViews = 64;  // between a launch and its wait

std::optional<uint32_t> group_of(const Node& node) {
  std::optional<uint32_t> found;
  for (const Arg& arg : node.args)
    arg.walk([&](const Arg& a) {
      if (!found && a.is(ArgKind::group)) found = a.as_group().index;
    });
  return found;
}

class SequenceBuilder {
 public:
  SequenceBuilder(const Program& program, size_t* budget) : program_(program), budget_(budget) {}

  CollectiveSequence build() {
    for (NodeId n : nodes_of(program_.graph)) visit(program_.graph, n, n, 0);
    return std::move(out_);
  }

 private:
  // The collective nodes of a graph, collected once per graph.
  const std::vector<NodeId>& nodes_of(const Graph& g) {
    auto [it, is_new] = nodes_.try_emplace(&g);
    if (!is_new) return it->second;
    for (NodeId n : g.nodes()) {
      const OpInfo* info = g.op_info(n);
      bool matters = info && (info->has(kWait) || info->name == "sg.call");
      if (matters || group_of(g.node(n))) it->second.push_back(n);
    }
    return it->second;
  }

  void visit(const Graph& g, NodeId n, NodeId top, int depth) {
    if (*budget_ == 0) out_.complete = false;
    if (!out_.complete) return;
    --*budget_;
    const Node& node = g.node(n);
    const OpInfo* info = g.op_info(n);
    if (info && info->has(kWait)) {
      add_wait(g, n, top);
    } else if (std::optional<uint32_t> group = group_of(node)) {
      std::vector<size_t>& calls = out_.launches[*group];
      launched_[&g][n.index] = out_.events.size();
      calls.push_back(out_.events.size());
      out_.events.push_back({false, *group, static_cast<uint32_t>(calls.size() - 1), &g, n, top});
    } else if (!node.args.empty() && node.args[0].is(ArgKind::graph)) {
      if (depth == kMaxCollectiveDepth) return void(out_.complete = false);
      const Graph& body = program_.nested[node.args[0].as_graph().index]->graph;
      for (NodeId inner : nodes_of(body)) visit(body, inner, top, depth + 1);
    }
  }

  // Finds the launch that a wait belongs to, through the views between them.
  void add_wait(const Graph& g, NodeId n, NodeId top) {
    NodeId at = n;
    for (int steps = 0; steps < kMaxViews; ++steps) {
      const Node& node = g.node(at);
      if (node.args.empty() || !node.args[0].is(ArgKind::value)) return;
      at = g.value(node.args[0].as_value()).def;
      if (!at || starts_transfer(g.op_info(at))) return;  // a copy to the host or back: no other rank takes part
      auto& launched = launched_[&g];
      if (auto it = launched.find(at.index); it != launched.end()) {
        const CollectiveEvent launch = out_.events[it->second];
        out_.events.push_back({true, launch.group, launch.call, &g, n, top});
        return;
      }
    }
    out_.complete = false;
  }

  const Program& program_;
  size_t* budget_;
  CollectiveSequence out_;
  std::unordered_map<const Graph*, std::vector<NodeId>> nodes_;
  std::unordered_map<const Graph*, std::unordered_map<uint32_t, size_t>> launched_;
};

// "_c10d_functional.all_gather_into_tensor_out.default" -> "all_gather_into_tensor": the form that writes into a given
// buffer is the same call.
std::string_view call_kind(std::string_view op) {
  size_t dot = op.find('.');
  if (dot == std::string_view::npos) return op;
  std::string_view name = op.substr(dot + 1);
  name = name.substr(0, name.find('.'));
  if (name.size() > 4 && name.ends_with("_out")) name.remove_suffix(4);
  if (name.size() > 1 && name.back() == '_') name.remove_suffix(1);
  return name;
}

void add_payload(const Pool& pool, const Graph& g, const Arg& input, const SizeValues& values, CollectiveFacts* call) {
  int64_t total = 0;
  bool known = true;
  input.walk([&](const Arg& a) {
    if (!a.is(ArgKind::value)) return;
    const Type& t = g.type(a.as_value());
    std::optional<int64_t> n = t.kind == TypeKind::tensor ? element_count(pool, t, values) : std::nullopt;
    if (t.kind == TypeKind::tensor) call->dtype = t.dtype;
    known = known && n && !__builtin_add_overflow(total, *n, &total);
  });
  if (known) call->elements = total;
}

}  // namespace

const std::vector<size_t>& CollectiveSequence::of_group(uint32_t g) const {
  static const std::vector<size_t> none;
  auto it = launches.find(g);
  return it == launches.end() ? none : it->second;
}

CollectiveSequence collective_sequence(const Program& program, size_t* budget) {
  return SequenceBuilder(program, budget).build();
}

CollectiveFacts collective_facts(const Pool& pool, const CollectiveEvent& e, const SizeValues& values) {
  const Node& node = e.graph->node(e.node);
  const OpInfo* info = e.graph->op_info(e.node);
  CollectiveFacts call;
  call.kind = call_kind(e.graph->op_name(e.node));
  if (!info) return call;
  auto given = [&](std::string_view param, ArgKind kind) {
    const Arg* arg = argument(node, *info, pool.strings, param);
    return arg && arg->is(kind) ? arg : nullptr;
  };
  if (!info->params.empty())
    if (const Arg* input = argument(node, *info, pool.strings, info->params[0].name))
      add_payload(pool, *e.graph, *input, values, &call);
  if (const Arg* by = given("reduce_op", ArgKind::string)) call.reduce_op = pool.strings[by->as_text()];
  if (const Arg* src = given("src", ArgKind::integer)) call.src = src->as_int();
  call.send = given("input_split_sizes", ArgKind::list);
  call.receive = given("output_split_sizes", ArgKind::list);
  return call;
}

std::string collective_mismatch(const CollectiveFacts& a, const CollectiveFacts& b) {
  auto differ = [](std::string_view what, std::string x, std::string y) {
    return std::string(what) + " " + x + " here, " + y + " there";
  };
  if (a.kind != b.kind) return differ("it is", std::string(a.kind), std::string(b.kind));
  if (a.dtype != b.dtype && a.dtype != DType::none && b.dtype != DType::none)
    return differ("elements are", std::string(dtype_name(a.dtype)), std::string(dtype_name(b.dtype)));
  if (a.reduce_op != b.reduce_op) return differ("it reduces by", std::string(a.reduce_op), std::string(b.reduce_op));
  if (a.src != b.src && a.src && b.src) return differ("it sends from", std::to_string(*a.src), std::to_string(*b.src));
  if (!a.send && !a.receive && a.elements && b.elements && *a.elements != *b.elements)
    return differ("it has", std::to_string(*a.elements) + " elements", std::to_string(*b.elements));
  return {};
}

}  // namespace sg
