// Rules about effects: writes, collectives in flight, random numbers, groups.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "libgraph/base/human.h"
#include "libgraph/expr/sizes.h"
#include "libgraph/facts/transfer.h"
#include "libgraph/group_name.h"
#include "libgraph/operands.h"
#include "libgraph/verify/verify_rules.h"

namespace sg {
namespace {

// Several elements share an address, so the result of a write would depend on their order.
bool overlaps_itself(const Check& c, const Type& t) {
  if (t.kind != TypeKind::tensor || t.shape.size() != t.stride.size()) return false;
  if (std::ranges::any_of(t.shape, [&](Expr e) { return c.pool.exprs.constant_value(e) == 0; })) return false;
  for (size_t i = 0; i < t.shape.size(); ++i)
    if (c.pool.exprs.constant_value(t.stride[i]) == std::optional<int64_t>(0) &&
        c.pool.exprs.constant_value(t.shape[i]).value_or(2) > 1)
      return true;
  return false;
}

bool launches(const OpInfo* info) {
  return info && ((info->has(kCollective) && !info->has(kWait)) || starts_transfer(info));
}

std::string_view wait_for(const OpInfo* info) {
  return starts_transfer(info) ? "sg.wait" : "_c10d_functional.wait_tensor";
}

// Calls fn with each value that an op of the op table writes.
template <class Fn>
void for_each_written(const Check& c, NodeId n, const Fn& fn) {
  const OpInfo* info = c.graph->op_info(n);
  if (!info || !writes_arguments(*c.graph, n)) return;
  std::vector<const Arg*> args = args_by_param(c.pool, c.graph->node(n), *info);
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i] || !info->params[i].written) continue;
    args[i]->walk([&](const Arg& a) {
      if (a.is(ArgKind::value)) fn(a.as_value());
    });
  }
}

// Whether any node writes, communicates or calls: if none does, aliasing does not matter.
bool has_effects(const Graph& g) {
  for (NodeId n : g.nodes()) {
    const OpInfo* info = g.op_info(n);
    if (info && (info->writes() || info->has(kCollective) || info->has(kHigherOrder) || starts_transfer(info)))
      return true;
  }
  return false;
}

void check_constants(Check& c, NodeId n) {
  const AliasAnalysis& alias = c.aliases();
  if (alias.effects(n) & (kEffectWait | kEffectOpaque)) return;  // a wait completes a write that its launch began
  for (StorageId s : alias.writes(n)) {
    const Storage& storage = alias.storage(s);
    if (!storage.is_input() || !storage.certain) continue;
    if (c.graph->inputs()[c.graph->value(storage.owner).index].kind != InputKind::constant) continue;
    ValueId through;
    for_operands(*c.graph, n, [&](ValueId v) {
      if (!through && alias.storage_of(v) == s) through = v;
    });
    bool direct = !through || through == storage.owner;
    c.fail(n,
           "writes to the constant " + c.name(storage.owner) + (direct ? "" : " through its view " + c.name(through)),
           "copy it first (aten.clone), or make the input a buffer");
  }
}

// Strides are given, not derived: an element may lie where no element of the storage is.
bool gives_strides(std::string_view op) {
  return op == "aten.as_strided.default" || op == "aten.as_strided_.default" || op == "aten._reshape_alias.default";
}

// Inputs are left out: what a capture is given may be a view of more memory, which is known when it runs.
void check_extent(Check& c, NodeId n) {
  const AliasAnalysis& alias = c.aliases();
  const ValueId v = c.graph->node(n).result(0);
  const StorageId s = alias.storage_of(v);
  if (!s || alias.storage(s).is_input() || !alias.storage(s).certain || alias.storage(s).owner == v) return;
  const SizeValues none;
  const auto reach = storage_bytes(c.pool, c.graph->type(v), none);
  const auto memory = storage_bytes(c.pool, c.graph->type(alias.storage(s).owner), none);
  if (reach && memory && *reach > *memory)
    c.fail(n, "reaches " + std::to_string(*reach) + " bytes far into the memory of " + c.name(alias.storage(s).owner) +
                  ", which has " + std::to_string(*memory));
}

}  // namespace

void check_extents(Check& c) {
  for (NodeId n : c.graph->nodes())
    if (c.graph->node(n).result_count == 1 && c.graph->op_info(n) && gives_strides(c.graph->op_name(n)))
      check_extent(c, n);
}

void check_writes(Check& c) {
  if (!has_effects(*c.graph)) return;
  for (NodeId n : c.graph->nodes()) {
    for_each_written(c, n, [&](ValueId v) {
      if (overlaps_itself(c, c.graph->type(v)))
        c.fail(n, "writes to " + c.name(v) + ", whose elements share storage (stride 0)", "copy it first (aten.clone)");
    });
    check_constants(c, n);
  }
}

// --- collectives and transfers in flight ---

namespace {

// Walks a graph's nodes in order and tracks collectives and transfers that were launched and not waited for. Whether
// two parts of one storage overlap is unknown, so only a view of the result, or a value with exactly the type of the
// result or input, counts as the same elements.
class Flight {
 public:
  explicit Flight(Check& c) : c_(c), alias_(c.aliases()) {}

  void visit(NodeId n) {
    const OpInfo* info = c_.graph->op_info(n);
    if (info && info->has(kWait)) return land(n);
    // A body may wait for its inputs; before the wait, sizes may be read and views taken.
    bool waits_inside = alias_.effects(n) & kEffectWait;
    if (info && !waits_inside && !info->has(kSize) && !info->has(kView)) check_uses(n);
    if (waits_inside) land(n);
    if (launches(info)) launch(n);
  }

  void check_outputs() {
    for (const Output& out : c_.graph->outputs())
      if (NodeId launch = out.value ? in_flight(out.value) : NodeId())
        c_.fail(launch, "its result is an output before it was waited for", "return the result of its wait");
  }

 private:
  struct Sent {
    NodeId launch;
    ValueId value;
  };

  NodeId in_flight(ValueId v) const {
    StorageId s = alias_.storage_of(v);
    auto it = s ? results_.find(s.index) : results_.end();
    if (it == results_.end()) return NodeId();
    bool same = alias_.launch_of(v) == it->second.launch || type(v) == type(it->second.value);
    return same ? it->second.launch : NodeId();
  }
  TypeId type(ValueId v) const { return c_.graph->value(v).type; }

  void check_uses(NodeId n) {
    if (results_.empty() && sent_.empty()) return;
    bool said = false;
    for_operands(*c_.graph, n, [&](ValueId v) {
      NodeId launch = said ? NodeId() : in_flight(v);
      if (!launch) return;
      said = true;
      c_.fail(n, "uses " + c_.name(v) + " before it was waited for",
              "put " + std::string(wait_for(c_.graph->op_info(launch))) + " between " + c_.label(launch) + " and it");
    });
    auto check_write = [&](ValueId v) {
      StorageId s = alias_.storage_of(v);
      auto it = s && !said ? sent_.find(s.index) : sent_.end();
      if (it == sent_.end() || type(v) != type(it->second.value)) return;
      said = true;
      c_.fail(n, "writes to " + c_.name(v) + " while " + c_.label(it->second.launch) + " still sends it",
              "write after the wait for " + c_.label(it->second.launch) + ", or send a copy");
    };
    for_each_written(c_, n, check_write);
    if (const OpInfo* info = c_.graph->op_info(n); info && info->has(kHigherOrder))  // written by its body
      for_operands(*c_.graph, n, [&](ValueId v) {
        if (StorageId s = alias_.storage_of(v); s && std::ranges::binary_search(alias_.writes(n), s)) check_write(v);
      });
  }

  void launch(NodeId n) {
    for_operands(*c_.graph, n, [&](ValueId v) {
      if (StorageId s = alias_.storage_of(v); s && alias_.storage(s).certain) sent_[s.index] = {n, v};
    });
    const Node& node = c_.graph->node(n);
    for (uint32_t i = 0; i < node.result_count; ++i) {
      StorageId s = alias_.storage_of(node.result(i));
      if (!s || !alias_.storage(s).certain) continue;
      results_[s.index] = {n, node.result(i)};
      sent_.erase(s.index);  // a result buffer is no input
    }
  }

  void land(NodeId n) {
    const OpInfo* info = c_.graph->op_info(n);
    ValueId waited;  // what a wait waits for; it only keeps later operands alive
    for_operands(*c_.graph, n, [&](ValueId v) {
      if (waited.is_none()) waited = v;
      if (info && info->has(kWait) && v != waited) return;
      StorageId s = alias_.storage_of(v);
      auto it = s ? results_.find(s.index) : results_.end();
      if (it == results_.end()) return;
      NodeId launch = it->second.launch;
      results_.erase(it);
      if (!landed_.insert(launch.index).second) return;
      for_operands(*c_.graph, launch, [&](ValueId input) {
        StorageId in = alias_.storage_of(input);
        auto sent = in ? sent_.find(in.index) : sent_.end();
        if (sent != sent_.end() && sent->second.launch == launch) sent_.erase(sent);
      });
    });
  }

  Check& c_;
  const AliasAnalysis& alias_;
  std::unordered_map<uint32_t, Sent> results_, sent_;  // by storage
  std::unordered_set<uint32_t> landed_;                // launches with a result that was waited for
};

}  // namespace

void check_waits(Check& c) {
  if (!has_effects(*c.graph)) return;
  Flight flight(c);
  for (NodeId n : c.graph->nodes()) flight.visit(n);
  flight.check_outputs();
}

// --- random numbers ---

void check_random(Check& c, NodeId n) {
  const OpInfo* info = c.graph->op_info(n);
  const RandomInfo& random = c.graph->meta(n).random;
  if (info && draws_random(*c.graph, n)) {
    if (random.stream == 0) c.fail(n, "draws random numbers, but has no stream", "give it one: `stream 1`");
  } else if (info && random.stream != 0) {
    c.fail(n, "has a random stream, but draws no random numbers", "remove the stream");
  }
  if (random.origin_shape.size() != random.origin_offset.size())
    return c.fail(n, "the shape of its original and the place in it differ in their number of dimensions");
  if (random.stream == 0 && !random.origin_shape.empty()) return c.fail(n, "has a random origin without a stream");
  const Node& node = c.graph->node(n);
  if (random.origin_shape.empty() || node.result_count == 0) return;
  const Type& t = c.graph->type(node.first_result);
  if (t.kind != TypeKind::tensor) return;
  if (t.shape.size() != random.origin_shape.size())
    return c.fail(n, "its original has " + plural(random.origin_shape.size(), "dimension") + ", it has " +
                         std::to_string(t.shape.size()));
  for (size_t i = 0; i < t.shape.size(); ++i) {
    Expr end = c.pool.exprs.add(random.origin_offset[i], t.shape[i]);
    std::optional<int64_t> last = c.pool.exprs.constant_value(end),
                           size = c.pool.exprs.constant_value(random.origin_shape[i]);
    std::optional<int64_t> first = c.pool.exprs.constant_value(random.origin_offset[i]);
    if ((last && size && *last > *size) || (first && *first < 0))
      c.fail(n, "lies outside its original along dimension " + std::to_string(i));
  }
}

namespace {

// The name of what a node is a copy or chunk of, over all steps; for an original its own label. The original itself may
// be gone; its name remains.
StrId original_of(const Graph& g, NodeId n) {
  constexpr int kMaxSteps = 32;  // copies of copies; any end will do if there is a cycle
  StrId name = g.node(n).label;
  for (int step = 0; n && step < kMaxSteps; ++step) {
    const NodeMeta& m = g.meta(n);
    StrId of = m.copy.kind != CopyKind::none ? m.copy.of : m.chunk.original;
    if (!of) break;
    name = of;
    n = g.find_node(g.pool().strings[of]);
    if (n) name = g.node(n).label;
  }
  return name;
}

}  // namespace

void check_random_streams(Check& c) {
  struct First {
    const Graph* graph;
    NodeId node;
  };
  std::unordered_map<uint32_t, First> owners;
  auto check_graph = [&](const Graph& g) {
    c.enter(g);
    for (NodeId n : g.nodes()) {
      uint32_t stream = g.node(n).meta == Pool::kDefaultMeta ? 0 : g.meta(n).random.stream;
      if (stream == 0) continue;
      auto [it, is_new] = owners.try_emplace(stream, First{&g, n});
      const First& first = it->second;
      if (is_new || (first.graph == &g && original_of(g, n) == original_of(g, first.node))) continue;
      c.fail(n,
             "draws from random stream " + std::to_string(stream) + ", as " + "%" +
                 std::string(first.graph->label(first.node)) + " does, but neither is a copy of the other",
             "give it a stream of its own, or say what it is a copy of (`remat_of`, `chunk_of`)");
    }
  };
  check_graph(c.program->graph);
  for (const auto& nested : c.program->nested) check_graph(nested->graph);
  c.enter(c.program->graph);
}

// --- groups ---

namespace {

using GroupMembers = std::vector<std::pair<uint32_t, size_t>>;

GroupMembers members_of(const Group& g) {
  GroupMembers out;
  for (const GroupPart& part : g.parts)
    for (uint32_t r : part.ranks) out.emplace_back(r, part.ranks.size());
  std::ranges::sort(out);
  return out;
}

// The size of the part that holds this rank; none = no part does.
std::optional<size_t> size_for_rank(const GroupMembers& members, uint32_t rank) {
  const auto at = std::ranges::lower_bound(members, rank, {}, &GroupMembers::value_type::first);
  return at == members.end() || at->first != rank ? std::nullopt : std::optional(at->second);
}

// The first rank of the program that is in no part of the group; none if all are.
std::optional<uint32_t> rank_outside(const Check& c, const GroupMembers& members) {
  if (!c.program->ranks.empty()) {
    const auto outside = std::ranges::find_if(c.program->ranks, [&](uint32_t r) { return !size_for_rank(members, r); });
    return outside == c.program->ranks.end() ? std::nullopt : std::optional(*outside);
  }
  for (uint32_t r = 0; r < c.job.world; ++r)
    if (r >= members.size() || members[r].first != r) return r;  // stops at the first gap, within the members
  return std::nullopt;
}

// The group's size for the ranks of this program; none if it differs between ranks.
std::optional<size_t> size_for_program(const Check& c, const Group& g, const GroupMembers& members) {
  std::vector<size_t> sizes;
  for (uint32_t r : c.program->ranks)
    if (const auto size = size_for_rank(members, r)) sizes.push_back(*size);
  if (c.program->ranks.empty())
    for (const GroupPart& part : g.parts) sizes.push_back(part.ranks.size());
  if (sizes.empty() || std::ranges::count(sizes, sizes[0]) != std::ssize(sizes)) return std::nullopt;
  return sizes[0];
}

// What the use of a group needs to know, for the current program.
const Check::GroupFacts& facts_of(Check& c, GroupId group) {
  const Group& g = c.job.groups[group.index];
  Check::GroupFacts& facts = c.group_facts[group.index];
  if (facts.round == c.program_round) return facts;
  if (facts.members.empty()) facts.members = members_of(g);
  facts.round = c.program_round;
  facts.outside = rank_outside(c, facts.members);
  facts.size = size_for_program(c, g, facts.members);
  return facts;
}

void check_sizes(Check& c, NodeId n, const OpInfo& info, GroupId group, std::optional<size_t> size) {
  if (!size) return;
  std::string is = " ranks, but @" + group_name(c.job, group) + " has " + std::to_string(*size);
  std::vector<const Arg*> args = args_by_param(c.pool, c.graph->node(n), info);
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i]) continue;
    std::string_view param = info.params[i].name;
    if (param == "group_size" && args[i]->is(ArgKind::integer) && args[i]->as_int() != static_cast<int64_t>(*size))
      c.fail(n, "calls for " + std::to_string(args[i]->as_int()) + is, "correct the argument or the group");
    bool splits = param == "output_split_sizes" || param == "input_split_sizes";
    if (splits && args[i]->is(ArgKind::list) && !args[i]->items().empty() && args[i]->items().size() != *size)
      c.fail(n, std::string(param) + " is for " + std::to_string(args[i]->items().size()) + is,
             "one number per rank of the group");
    if (param == "src" && args[i]->is(ArgKind::integer) &&
        (args[i]->as_int() < 0 || args[i]->as_int() >= static_cast<int64_t>(*size)))
      c.fail(n, "sends from rank " + std::to_string(args[i]->as_int()) + " of a group of " + std::to_string(*size));
  }
}

}  // namespace

void check_group_use(Check& c, NodeId n) {
  const OpInfo* info = c.graph->op_info(n);
  for (const Arg& arg : c.graph->node(n).args)
    arg.walk([&](const Arg& a) {
      if (!a.is(ArgKind::group)) return;
      const Check::GroupFacts& facts = facts_of(c, a.as_group());
      if (facts.outside)
        return c.fail(
            n,
            "rank " + std::to_string(*facts.outside) + " runs this, but is not in @" + group_name(c.job, a.as_group()),
            "add a part with that rank to the group, or give the rank a graph of its own");
      if (info) check_sizes(c, n, *info, a.as_group(), facts.size);
    });
}

}  // namespace sg
