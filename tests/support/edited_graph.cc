#include "tests/support/edited_graph.h"

#include <algorithm>
#include <unordered_map>

#include "libgraph/diff/match.h"

namespace sg::test {
namespace {

constexpr const char* kUnary[] = {"aten.relu.default", "aten.exp.default", "aten.tanh.default", "aten.neg.default"};
constexpr const char* kBinary[] = {"aten.add.Tensor", "aten.mul.Tensor", "aten.mm.default", "aten.sub.Tensor"};
constexpr const char* kScaled = "aten.mul.Scalar";

size_t arity(const std::string& op) {
  return op.find(".Tensor") != std::string::npos || op == "aten.mm.default" ? 2 : 1;
}

std::string random_op(Rng& rng) {
  unsigned p = static_cast<unsigned>(rng.below(10));
  return p < 4 ? rng.pick(kUnary) : p < 5 ? kScaled : rng.pick(kBinary);
}

double random_literal(Rng& rng) { return static_cast<double>(rng.between(1, 40)) / 8; }

// An operand defined before `position`: mostly a recent one.
uint32_t random_operand(const GraphSketch& s, size_t position, Rng& rng) {
  if (position == 0 || rng.percent(15)) return GraphSketch::kInput | static_cast<uint32_t>(rng.below(s.inputs.size()));
  size_t reach = rng.percent(80) ? std::min<size_t>(position, 8) : std::min<size_t>(position, 200);
  return s.nodes[position - 1 - rng.below(reach)].identity;
}

std::vector<size_t> uses(const GraphSketch& s, uint32_t identity, size_t from) {
  std::vector<size_t> out;
  for (size_t i = from; i < s.nodes.size(); ++i)
    if (std::count(s.nodes[i].operands.begin(), s.nodes[i].operands.end(), identity)) out.push_back(i);
  return out;
}

void replace(GraphSketch* s, uint32_t from, uint32_t to) {
  for (GraphSketch::Node& n : s->nodes) std::replace(n.operands.begin(), n.operands.end(), from, to);
  std::replace(s->outputs.begin(), s->outputs.end(), from, to);
}

void use_what_is_unused(GraphSketch* s) {
  std::vector<bool> used(s->next_identity);
  for (const GraphSketch::Node& n : s->nodes)
    for (uint32_t o : n.operands)
      if (!(o & GraphSketch::kInput)) used[o] = true;
  for (const GraphSketch::Node& n : s->nodes)
    if (!used[n.identity]) s->outputs.push_back(n.identity);
}

// Moves a node within the range that its operands and users allow.
bool move_node(GraphSketch* s, size_t from, Rng& rng) {
  GraphSketch::Node node = s->nodes[from];
  size_t low = from, high = from;
  auto is_operand = [&](size_t i) {
    return std::count(node.operands.begin(), node.operands.end(), s->nodes[i].identity) != 0;
  };
  auto is_user = [&](size_t i) {
    return std::count(s->nodes[i].operands.begin(), s->nodes[i].operands.end(), node.identity) != 0;
  };
  while (low > 0 && from - low < 50 && !is_operand(low - 1)) --low;
  while (high + 1 < s->nodes.size() && high - from < 50 && !is_user(high + 1)) ++high;
  if (low == high) return false;
  size_t to = low + rng.below(high - low + 1);
  if (to == from) to = to == high ? low : to + 1;
  s->nodes.erase(s->nodes.begin() + static_cast<ptrdiff_t>(from));
  s->nodes.insert(s->nodes.begin() + static_cast<ptrdiff_t>(to), node);
  return true;
}

bool has_neighbour_with(const GraphSketch& s, size_t at, const std::string& op) {
  for (size_t i = 0; i < s.nodes.size(); ++i) {
    if (s.nodes[i].op != op || i == at) continue;
    const std::vector<uint32_t>&mine = s.nodes[at].operands, &theirs = s.nodes[i].operands;
    if (std::count(mine.begin(), mine.end(), s.nodes[i].identity) ||
        std::count(theirs.begin(), theirs.end(), s.nodes[at].identity))
      return true;
    if (std::find_first_of(mine.begin(), mine.end(), theirs.begin(), theirs.end()) != mine.end()) return true;  // twins
  }
  return false;
}

GraphSketch::Node make_node(GraphSketch* s, size_t position, Rng& rng) {
  GraphSketch::Node n;
  n.identity = s->next_identity++;
  n.op = random_op(rng);
  for (size_t i = 0; i < arity(n.op); ++i) n.operands.push_back(random_operand(*s, position, rng));
  n.literal = random_literal(rng);
  if (position > 0) n.layer = s->nodes[position - 1].layer;
  return n;
}

void insert_at(GraphSketch* s, size_t position, GraphSketch::Node node) {
  s->nodes.insert(s->nodes.begin() + static_cast<ptrdiff_t>(position), std::move(node));
}

}  // namespace

size_t GraphSketch::position(uint32_t identity) const {
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].identity == identity) return i;
  return nodes.size();
}

Job GraphSketch::job() const {
  Job job;
  Program& program = job.add_program();
  Graph& g = program.graph;
  Pool& pool = *job.pool;
  Expr eight = pool.exprs.constant(8);
  TypeId type = pool.tensor(DType::f32, {eight, eight}, pool.str("cpu"));
  std::vector<ValueId> in;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Input input;
    input.kind = inputs[i].empty() ? InputKind::user : InputKind::parameter;
    if (!inputs[i].empty()) input.fqn = pool.str(inputs[i]);
    in.push_back(g.add_input("in" + std::to_string(i), type, input));
  }
  std::vector<ValueId> value(next_identity);
  for (const Node& n : nodes) {
    NodeSpec spec;
    spec.op = pool.op(n.op);
    for (uint32_t o : n.operands) spec.args.push_back(Arg::value(o & kInput ? in[o & ~kInput] : value[o]));
    if (n.op == kScaled) spec.args.push_back(Arg::floating(n.literal));
    spec.result_types = {type};
    spec.names = {(n.renamed ? "renamed" : "n") + std::to_string(n.identity)};
    spec.phase = n.backward ? Phase::backward : Phase::forward;
    spec.module = pool.str("layers." + std::to_string(n.layer) + ".block");
    spec.source = pool.sources.intern({pool.str("model.py"), n.line, pool.str("forward")});
    value[n.identity] = g.node(g.append(spec)).first_result;
  }
  for (uint32_t o : outputs) {
    Output output;
    output.value = value[o];
    g.add_output(output);
  }
  return job;
}

GraphSketch random_sketch(Rng& rng, size_t layers, size_t layer_nodes, size_t inputs_of_layer) {
  GraphSketch t =
      random_small_sketch(rng, layer_nodes, inputs_of_layer + 1);  // input 0: the output of the layer before
  GraphSketch s;
  s.inputs = {""};
  s.layer_nodes = static_cast<uint32_t>(layer_nodes);
  uint32_t stream = GraphSketch::kInput;
  for (uint32_t l = 0; l < layers; ++l) {
    uint32_t first_input = static_cast<uint32_t>(s.inputs.size()), base = s.next_identity;
    for (size_t i = 0; i < inputs_of_layer; ++i)
      s.inputs.push_back("layers." + std::to_string(l) + ".w" + std::to_string(i));
    for (GraphSketch::Node n : t.nodes) {
      n.identity += base, n.layer = l, n.line = n.identity - base + 1;
      for (uint32_t& o : n.operands) {
        if (o == GraphSketch::kInput) o = stream;
        else
          o = o & GraphSketch::kInput ? GraphSketch::kInput | (first_input + (o & ~GraphSketch::kInput) - 1) : o + base;
      }
      s.nodes.push_back(n);
    }
    s.next_identity += t.next_identity;
    stream = s.nodes.back().identity;
  }
  use_what_is_unused(&s);
  return s;
}

GraphSketch random_small_sketch(Rng& rng, size_t nodes, size_t inputs) {
  GraphSketch s;
  s.inputs.assign(inputs, "");
  for (size_t i = 0; i < nodes; ++i) s.nodes.push_back(make_node(&s, i, rng));
  use_what_is_unused(&s);
  return s;
}

bool plant(GraphSketch* s, Planted kind, Rng& rng) {
  if (s->nodes.empty()) return false;
  size_t at = rng.below(s->nodes.size());
  GraphSketch::Node& n = s->nodes[at];
  switch (kind) {
    case Planted::rename: return !std::exchange(n.renamed, true);
    case Planted::move: return move_node(s, at, rng);
    case Planted::op: {
      std::string old = n.op;
      if (old == kScaled) return false;
      while (n.op == old) n.op = arity(old) == 1 ? rng.pick(kUnary) : rng.pick(kBinary);
      return true;
    }
    case Planted::literal:
      if (n.op != kScaled) return false;
      n.literal += 1;
      return true;
    case Planted::operand: {
      uint32_t& o = n.operands[rng.below(n.operands.size())];
      uint32_t now = random_operand(*s, at, rng);
      if (now == o || n.operands.size() != arity(n.op)) return false;
      o = now;
      return true;
    }
    case Planted::meta: n.backward = !n.backward; return true;
    case Planted::line: n.line += 1000; return true;
    case Planted::add: {
      GraphSketch::Node made = make_node(s, at, rng);
      s->outputs.push_back(made.identity);
      insert_at(s, at, std::move(made));
      return true;
    }
    case Planted::remove: {
      uint32_t identity = n.identity, to = n.operands[0];
      if (has_neighbour_with(*s, at, n.op)) return false;  // which of the two was removed is ambiguous
      if (to & GraphSketch::kInput && std::count(s->outputs.begin(), s->outputs.end(), identity)) return false;
      s->nodes.erase(s->nodes.begin() + static_cast<ptrdiff_t>(at));
      replace(s, identity, to);
      return true;
    }
    case Planted::insert: {  // a node between this one and all its users
      GraphSketch::Node made;
      made.op = rng.pick(kUnary), made.layer = n.layer;
      if (n.op == made.op || has_neighbour_with(*s, at, made.op)) return false;
      made.identity = s->next_identity++;
      uint32_t from = n.identity;
      replace(s, from, made.identity);
      made.operands = {from};
      insert_at(s, at + 1, std::move(made));
      return true;
    }
    case Planted::copy: {  // the last user computes the node again
      std::vector<size_t> users = uses(*s, n.identity, at + 1);
      if (users.size() < 2) return false;
      GraphSketch::Node made = n;
      made.identity = s->next_identity++, made.backward = true, made.renamed = false;
      std::replace(s->nodes[users.back()].operands.begin(), s->nodes[users.back()].operands.end(), n.identity,
                   made.identity);
      insert_at(s, users.back(), std::move(made));
      return true;
    }
  }
  return false;
}

TrueEdits true_edits(const GraphSketch& before, const GraphSketch& after) {
  TrueEdits out;
  std::unordered_map<uint32_t, uint32_t> of_b;
  for (uint32_t i = 0; i < after.nodes.size(); ++i) of_b.emplace(after.nodes[i].identity, i);
  std::vector<uint32_t> partner(before.nodes.size(), GraphMatch::kNone);
  std::vector<bool> taken(after.nodes.size());
  for (uint32_t i = 0; i < before.nodes.size(); ++i) {
    const GraphSketch::Node& x = before.nodes[i];
    auto at = of_b.find(x.identity);
    if (at == of_b.end()) {
      out.by_kind["removed"].push_back(x.identity);
      continue;
    }
    partner[i] = at->second, taken[at->second] = true;
    const GraphSketch::Node& y = after.nodes[at->second];
    auto edit = [&](const char* kind, bool differs) {
      if (differs) out.by_kind[kind].push_back(x.identity);
    };
    std::vector<uint32_t> p = x.operands, q = y.operands;
    if (y.op == "aten.add.Tensor" || y.op == "aten.mul.Tensor")
      std::sort(p.begin(), p.end()), std::sort(q.begin(), q.end());
    edit("op", x.op != y.op), edit("operand", p != q), edit("attribute", x.op == kScaled && x.literal != y.literal);
    edit("meta", x.backward != y.backward), edit("loc", x.line != y.line), edit("name", x.renamed != y.renamed);
  }
  for (uint32_t j = 0; j < after.nodes.size(); ++j)
    if (!taken[j]) out.by_kind["added"].push_back(after.nodes[j].identity);
  std::vector<uint8_t> moved = moved_nodes(partner);
  out.moved = static_cast<size_t>(std::count(moved.begin(), moved.end(), 1));
  for (auto& [kind, list] : out.by_kind) std::sort(list.begin(), list.end());
  return out;
}

}  // namespace sg::test
