// Rules about the job as a whole: ranks, groups, meshes, provenance, keys, and nesting of graphs.
#include <algorithm>
#include <optional>
#include <unordered_set>

#include "libgraph/base/chars.h"
#include "libgraph/base/human.h"
#include "libgraph/op_hint.h"
#include "libgraph/verify/verify_rules.h"

namespace sg {
namespace {

std::string rank_text(uint32_t r) { return "rank " + std::to_string(r); }

std::string group_title(const Check& c, const Group& g) {
  return "group @" + std::string(c.str(g.axis)) + (g.ordinal ? ":" + std::to_string(g.ordinal) : "");
}

void check_program_ranks(Check& c, const Program& p) {
  for (size_t i = 0; i < p.ranks.size(); ++i) {
    if (p.ranks[i] >= c.job.world)
      c.fail(rank_text(p.ranks[i]) + " is outside the world of " + std::to_string(c.job.world), "raise `world`");
    if (i > 0 && p.ranks[i] <= p.ranks[i - 1]) c.fail("the ranks of a program are not in rising order");
  }
}

}  // namespace

void check_world(Check& c) {
  const auto& programs = c.job.programs;
  if (c.job.world == 0) c.fail("the world has no ranks", "`world 1` is one process");
  if (programs.empty()) c.fail("the job has no graph", "add `graph rank *`");
  std::unordered_set<uint32_t> held;
  for (size_t i = 0; i < programs.size(); ++i) {
    check_program_ranks(c, *programs[i]);
    if (programs[i]->ranks.empty() && programs.size() > 1)
      c.fail("a graph for every rank stands beside graphs for some", "give each graph its ranks");
    for (uint32_t r : programs[i]->ranks)
      if (!held.insert(r).second) c.fail(rank_text(r) + " has two graphs");
    bool sorted = i == 0 || programs[i]->ranks.empty() || programs[i - 1]->ranks.empty() ||
                  programs[i - 1]->ranks[0] < programs[i]->ranks[0];
    if (!sorted) c.fail("graphs are not in the order of their first ranks");
  }
}

namespace {

void check_group_part(Check& c, size_t index, const GroupPart& part, std::unordered_set<uint32_t>* members) {
  std::string group = group_title(c, c.job.groups[index]);
  if (part.ranks.empty()) c.fail_item("group", index, group + " has a part without ranks");
  for (uint32_t r : part.ranks) {
    if (r >= c.job.world)
      c.fail_item("group", index,
                  group + " has " + rank_text(r) + ", outside the world of " + std::to_string(c.job.world));
    if (!members->insert(r).second)
      c.fail_item("group", index, group + " has " + rank_text(r) + " twice", "a rank is in one part of a family, once");
  }
  std::unordered_set<uint32_t> mine(part.ranks.begin(), part.ranks.end());
  for (size_t k = 0; k < part.aliases.size(); ++k) {
    if (!mine.count(part.aliases[k].rank))
      c.fail_item("group", index,
                  group + " has a name on " + rank_text(part.aliases[k].rank) + ", which is not in that part");
    if (k > 0 && part.aliases[k].rank <= part.aliases[k - 1].rank)
      c.fail_item("group", index, group + ": names are not in the order of their ranks");
  }
}

}  // namespace

void check_groups(Check& c) {
  std::unordered_set<uint64_t> identities;
  for (size_t index = 0; index < c.job.groups.size(); ++index) {
    const Group& g = c.job.groups[index];
    std::string group = group_title(c, g);
    if (!identities.insert(uint64_t{g.axis.index} << 32 | g.ordinal).second)
      c.fail_item("group", index, "two groups are " + group, "tell them apart by an ordinal: @axis:1");
    if (g.parts.empty()) c.fail_item("group", index, group + " has no ranks");
    std::unordered_set<uint32_t> members;
    for (size_t i = 0; i < g.parts.size(); ++i) {
      const GroupPart& part = g.parts[i];
      check_group_part(c, index, part, &members);
      if (i > 0 && !part.ranks.empty() && !g.parts[i - 1].ranks.empty() && part.ranks[0] <= g.parts[i - 1].ranks[0])
        c.fail_item("group", index, group + ": parts are not in the order of their first ranks");
    }
  }
}

void check_meshes(Check& c) {
  std::unordered_set<uint32_t> names;
  for (size_t i = 0; i < c.job.meshes.size(); ++i) {
    const Mesh& m = c.job.meshes[i];
    auto fail = [&](std::string message, std::string hint = {}) {
      c.fail_item("mesh", i, std::move(message), std::move(hint));
    };
    std::string mesh = c.str(m.name).empty() ? "the main mesh" : "mesh " + std::string(c.str(m.name));
    if (!names.insert(m.name.index).second) fail("two meshes have the name \"" + std::string(c.str(m.name)) + "\"");
    if (m.axes.size() != m.shape.size())
      fail(mesh + " has " + plural(m.axes.size(), "axis") + " and " + plural(m.shape.size(), "size"));
    std::unordered_set<uint32_t> axes;
    for (StrId a : m.axes)
      if (!axes.insert(a.index).second) fail(mesh + " has axis \"" + std::string(c.str(a)) + "\" twice");
    uint64_t ranks = 1;
    for (uint32_t n : m.shape) ranks = ranks > UINT32_MAX ? ranks : ranks * n;
    if (ranks == 0) fail(mesh + " has an axis of size 0");
    if (ranks > c.job.world)
      fail(mesh + " has more places than the world has ranks (" + std::to_string(c.job.world) + ")",
           "raise `world`, or shrink an axis");
  }
}

// --- provenance and keys ---

namespace {

bool is_version(std::string_view s) {
  int dots = 0;
  bool digit = false;
  for (size_t i = 0; i < s.size(); ++i) {
    if (is_digit(s[i])) digit = true;
    else if (s[i] == '.' && digit && dots < 2) ++dots, digit = false;
    else return digit && dots == 2 && (s[i] == '-' || s[i] == '+');  // a pre-release or build suffix
  }
  return digit && dots == 2;
}

bool is_digest(std::string_view s) {
  constexpr std::string_view kPrefix = "sha256:";
  if (s.substr(0, kPrefix.size()) != kPrefix || s.size() != kPrefix.size() + 64) return false;
  return s.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string_view::npos;
}

bool keys_sorted(const Check& c, const std::vector<KeyValue>& list) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (c.str(list[i].key).empty() || c.str(list[i].json).empty()) return false;
    if (i > 0 && c.str(list[i - 1].key) >= c.str(list[i].key)) return false;
  }
  return true;
}

constexpr const char* kKeysMessage = "its free keys are not sorted, not unique, or one is empty";

}  // namespace

void check_provenance(Check& c) {
  for (size_t i = 0; i < c.job.provenance.size(); ++i) {
    const Provenance& p = c.job.provenance[i];
    std::string tool(c.str(p.tool));
    if (tool.empty()) c.fail_item("from", i, "a step of the provenance names no tool");
    if (!is_version(c.str(p.version))) c.fail_item("from", i, "provenance of " + tool + ": no version like 1.2.3");
    if (p.input_digest && !c.str(p.input_digest).empty() && !is_digest(c.str(p.input_digest)))
      c.fail_item("from", i, "provenance of " + tool + ": the digest is not sha256: and 64 hexadecimal digits");
  }
}

void check_keys(Check& c) {
  if (!keys_sorted(c, c.job.extra)) c.fail("the job: " + std::string(kKeysMessage));
  if (!keys_sorted(c, c.job.producer)) c.fail("the producer: " + std::string(kKeysMessage));
  for (const Provenance& p : c.job.provenance)
    if (!keys_sorted(c, p.options)) c.fail("options of " + std::string(c.str(p.tool)) + ": " + kKeysMessage);
}

void check_node_keys(Check& c, NodeId n) {
  if (c.graph->node(n).meta != Pool::kDefaultMeta && !keys_sorted(c, c.graph->meta(n).extra)) c.fail(n, kKeysMessage);
  if (n != c.graph->first()) return;
  for (size_t i = 0; i < c.graph->inputs().size(); ++i)
    if (!keys_sorted(c, c.graph->inputs()[i].extra)) c.fail_item("input", i, kKeysMessage);
  for (size_t i = 0; i < c.graph->outputs().size(); ++i)
    if (!keys_sorted(c, c.graph->outputs()[i].extra)) c.fail_item("output", i, kKeysMessage);
}

// --- nested graphs ---

namespace {

// Planning, simulating and running a step descend into every call: limits the depth (kMaxCallDepth, kMaxFrames) and the
// total work.
constexpr size_t kMaxCallDepth = 63;
constexpr uint64_t kMaxNodesWithCalls = uint64_t{1} << 26;

std::vector<uint32_t> graphs_within(const Graph& graph) {
  std::vector<uint32_t> out;
  for (NodeId n : graph.nodes())
    for (const Arg& arg : graph.node(n).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::graph)) out.push_back(a.as_graph().index);
      });
  return out;
}

std::vector<std::vector<uint32_t>> graphs_within(const Program& p) {
  std::vector<std::vector<uint32_t>> out;
  for (const auto& nested : p.nested) out.push_back(graphs_within(nested->graph));
  return out;
}

// The first graph that contains itself, found by an iterative depth-first walk. If none does: kNoneIndex, and all
// graphs are in `inner_first`.
uint32_t find_recursion(const std::vector<std::vector<uint32_t>>& within, std::vector<uint32_t>* inner_first) {
  enum : uint8_t { unseen, open, done };
  std::vector<uint8_t> state(within.size(), unseen);
  std::vector<std::pair<uint32_t, size_t>> stack;
  for (uint32_t root = 0; root < within.size(); ++root) {
    if (state[root] != unseen) continue;
    state[root] = open;
    stack.push_back({root, 0});
    while (!stack.empty()) {
      auto& [g, next] = stack.back();
      if (next == within[g].size()) {
        state[g] = done;
        inner_first->push_back(g);
        stack.pop_back();
        continue;
      }
      uint32_t inner = within[g][next++];
      if (state[inner] == open) return inner;
      if (state[inner] != unseen) continue;
      state[inner] = open;
      stack.push_back({inner, 0});
    }
  }
  return NestedId::kNoneIndex;
}

// The extent of a graph including everything its calls run.
struct Extent {
  size_t depth = 0;    // of nested calls
  uint64_t nodes = 0;  // at most kMaxNodesWithCalls + 1
};

Extent extent_of(const Graph& graph, const std::vector<uint32_t>& inside, const std::vector<Extent>& known) {
  Extent out{0, graph.node_count()};
  for (uint32_t inner : inside) {
    out.depth = std::max(out.depth, known[inner].depth + 1);
    out.nodes = std::min(out.nodes + known[inner].nodes, kMaxNodesWithCalls + 1);
  }
  return out;
}

void check_extent(Check& c, const std::vector<std::vector<uint32_t>>& within,
                  const std::vector<uint32_t>& inner_first) {
  const Program& p = *c.program;
  std::vector<Extent> known(within.size());
  for (uint32_t g : inner_first) known[g] = extent_of(p.nested[g]->graph, within[g], known);
  const Extent all = extent_of(p.graph, graphs_within(p.graph), known);
  if (all.depth > kMaxCallDepth)
    c.fail("calls of nested graphs lie " + std::to_string(all.depth) + " deep in each other; the most is " +
           std::to_string(kMaxCallDepth));
  if (all.nodes > kMaxNodesWithCalls)
    c.fail("with its calls the graph has more than " + std::to_string(kMaxNodesWithCalls) + " nodes");
}

}  // namespace

namespace {

NodeId first_of(const Graph& graph, OpId op) {
  for (NodeId n : graph.nodes())
    if (graph.node(n).op == op) return n;
  return {};
}

// The first node with this op: what it is called and its place; nothing if there is none.
struct FirstUse {
  std::string name, place;
};
std::optional<FirstUse> first_use(const Job& job, OpId op) {
  for (const auto& program : job.programs) {
    std::vector<const Graph*> graphs = {&program->graph};
    for (const auto& nested : program->nested) graphs.push_back(&nested->graph);
    for (const Graph* graph : graphs)
      if (NodeId n = first_of(*graph, op))
        return FirstUse{"%" + std::string(graph->label(n)), place_of(*program, *graph, n)};
  }
  return std::nullopt;
}

}  // namespace

// Limits the search: a job should have few unknown ops, and each is searched once.
void check_op_names(Check& c) {
  constexpr size_t kMaxLooked = 64, kMaxName = 128;
  size_t looked = 0;
  for (uint32_t i = 0; i < c.pool.ops.size() && looked < kMaxLooked; ++i) {
    if (c.pool.ops[OpId(i)].info != nullptr) continue;
    const std::string_view name = c.pool.op_name(OpId(i));
    if (name.size() > kMaxName) continue;
    ++looked;
    const std::string hint = hint_for_unknown_op(name);
    const std::optional<FirstUse> user = hint.empty() ? std::nullopt : first_use(c.job, OpId(i));
    if (user)
      c.warn(user->name + " calls " + std::string(name) + ", which is not in the op table and is kept as an opaque op",
             hint, user->place);
  }
}

void check_nested(Check& c) {
  std::unordered_set<uint32_t> names;
  for (const auto& n : c.program->nested) {
    if (c.str(n->name).empty()) c.fail("a nested graph has an empty name");
    if (!names.insert(n->name.index).second)
      c.fail("two nested graphs have the name \"" + std::string(c.str(n->name)) + "\"");
  }
  const auto within = graphs_within(*c.program);
  std::vector<uint32_t> inner_first;
  const uint32_t recursion = find_recursion(within, &inner_first);
  if (recursion == NestedId::kNoneIndex) return check_extent(c, within, inner_first);
  c.fail("the nested graph \"" + std::string(c.str(c.program->nested[recursion]->name)) + "\" contains itself");
}

}  // namespace sg
