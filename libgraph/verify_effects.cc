// Rules about what nodes do besides computing: writes, collectives in flight, random numbers, groups.
#include <algorithm>
#include <optional>

#include "libgraph/verify_rules.h"

namespace sg {
namespace {

// Several elements at one address: the result of a write would depend on the order of the elements.
bool overlaps_itself(const Check& c, const Type& t) {
  if (t.kind != TypeKind::tensor || t.shape.size() != t.stride.size()) return false;
  for (size_t i = 0; i < t.shape.size(); ++i)
    if (c.pool.exprs.constant_value(t.stride[i]) == std::optional<int64_t>(0) &&
        c.pool.exprs.constant_value(t.shape[i]).value_or(2) > 1)
      return true;
  return false;
}

void check_written(Check& c, NodeId n, ValueId v) {
  if (overlaps_itself(c, c.graph->type(v)))
    c.fail(n, "writes to " + c.name(v) + ", whose elements share storage (stride 0)", "copy it first (aten.clone)");
  const Value& value = c.graph->value(v);
  if (!value.def && c.graph->inputs()[value.index].kind == InputKind::constant)
    c.fail(n, "writes to the constant " + c.name(v), "copy it first (aten.clone), or make the input a buffer");
}

bool launches(const OpInfo* info) { return info && info->has(kCollective) && !info->has(kWait); }

}  // namespace

void check_writes(Check& c, NodeId n) {
  const OpInfo* info = c.graph->op_info(n);
  if (!info || !info->writes()) return;
  std::vector<const Arg*> args = args_by_param(c.pool, c.graph->node(n), *info);
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i] || !info->params[i].written) continue;
    args[i]->walk([&](const Arg& a) {
      if (a.is(ArgKind::value)) check_written(c, n, a.as_value());
    });
  }
}

// Sizes may be read before the wait; elements may not.
void check_waits(Check& c, NodeId n) {
  if (!launches(c.graph->op_info(n))) return;
  const Node& node = c.graph->node(n);
  for (uint32_t i = 0; i < node.result_count; ++i)
    c.graph->for_each_use(node.result(i), [&](Use use) {
      if (!use.user) return c.fail(n, "its result is an output before it was waited for", "return the result of its wait");
      const OpInfo* user = c.graph->op_info(use.user);
      if (!user || user->has(kWait) || user->has(kSize) || user->has(kView)) return;
      c.fail(use.user, "uses " + c.name(node.result(i)) + " before it was waited for",
             "put _c10d_functional.wait_tensor between " + c.label(n) + " and it");
    });
}

void check_random(Check& c, NodeId n) {
  const OpInfo* info = c.graph->op_info(n);
  const RandomInfo& random = c.graph->meta(n).random;
  if (info && draws_random(*c.graph, n)) {
    if (random.stream == 0) c.fail(n, "draws random numbers, but has no stream", "give it one: `random stream 1`");
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
    return c.fail(n, "its original has " + count_of(random.origin_shape.size(), "dimension") + ", it has " + std::to_string(t.shape.size()));
  for (size_t i = 0; i < t.shape.size(); ++i) {
    Expr end = c.pool.exprs.add(random.origin_offset[i], t.shape[i]);
    std::optional<int64_t> last = c.pool.exprs.constant_value(end), size = c.pool.exprs.constant_value(random.origin_shape[i]);
    std::optional<int64_t> first = c.pool.exprs.constant_value(random.origin_offset[i]);
    if ((last && size && *last > *size) || (first && *first < 0))
      c.fail(n, "lies outside its original along dimension " + std::to_string(i));
  }
}

// --- groups ---

namespace {

std::string group_text(const Check& c, const Group& g) {
  return "@" + std::string(c.str(g.axis)) + (g.ordinal ? ":" + std::to_string(g.ordinal) : "");
}

// The first rank of the program that is in no part of the group; none = all are in one.
std::optional<uint32_t> rank_outside(const Check& c, const Group& g) {
  std::vector<uint32_t> members;
  for (const GroupPart& part : g.parts) members.insert(members.end(), part.ranks.begin(), part.ranks.end());
  std::sort(members.begin(), members.end());
  if (c.program->ranks.empty()) {
    for (uint32_t r = 0; r < c.job.world; ++r)
      if (r >= members.size() || members[r] != r) return r;   // stops at the first gap: never past the members
    return std::nullopt;
  }
  for (uint32_t r : c.program->ranks)
    if (!std::binary_search(members.begin(), members.end(), r)) return r;
  return std::nullopt;
}

// How many ranks the group has wherever this program runs it; none when that differs from rank to rank.
std::optional<size_t> size_for_program(const Check& c, const Group& g) {
  std::optional<size_t> size;
  for (const GroupPart& part : g.parts) {
    bool mine = c.program->ranks.empty() || std::any_of(part.ranks.begin(), part.ranks.end(), [&](uint32_t r) {
                  return std::binary_search(c.program->ranks.begin(), c.program->ranks.end(), r);
                });
    if (!mine) continue;
    if (size && *size != part.ranks.size()) return std::nullopt;
    size = part.ranks.size();
  }
  return size;
}

void check_sizes(Check& c, NodeId n, const OpInfo& info, const Group& g, std::optional<size_t> size) {
  if (!size) return;
  std::string is = " ranks, but " + group_text(c, g) + " has " + std::to_string(*size);
  std::vector<const Arg*> args = args_by_param(c.pool, c.graph->node(n), info);
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i]) continue;
    std::string_view param = info.params[i].name;
    if (param == "group_size" && args[i]->is(ArgKind::integer) && args[i]->as_int() != static_cast<int64_t>(*size))
      c.fail(n, "calls for " + std::to_string(args[i]->as_int()) + is, "correct the argument or the group");
    bool splits = param == "output_split_sizes" || param == "input_split_sizes";
    if (splits && args[i]->is(ArgKind::list) && !args[i]->items().empty() && args[i]->items().size() != *size)
      c.fail(n, std::string(param) + " is for " + std::to_string(args[i]->items().size()) + is, "one number a rank of the group");
    if (param == "src" && args[i]->is(ArgKind::integer) && (args[i]->as_int() < 0 || args[i]->as_int() >= static_cast<int64_t>(*size)))
      c.fail(n, "sends from rank " + std::to_string(args[i]->as_int()) + " of a group of " + std::to_string(*size));
  }
}

}  // namespace

void check_group_use(Check& c, NodeId n) {
  const OpInfo* info = c.graph->op_info(n);
  for (const Arg& arg : c.graph->node(n).args)
    arg.walk([&](const Arg& a) {
      if (!a.is(ArgKind::group)) return;
      const Group& g = c.job.groups[a.as_group().index];
      Check::GroupFacts& facts = c.group_facts[a.as_group().index];
      if (facts.round != c.program_round) facts = {c.program_round, rank_outside(c, g), size_for_program(c, g)};
      if (facts.outside)
        return c.fail(n, "rank " + std::to_string(*facts.outside) + " runs this, but is not in " + group_text(c, g),
                      "add a part with that rank to the group, or give the rank a graph of its own");
      if (info) check_sizes(c, n, *info, g, facts.size);
    });
}

}  // namespace sg
