#include "libpasses/layers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "libgraph/facts/recompute_tags.h"
#include "libgraph/modules/module_path.h"
#include "libgraph/op.h"

namespace sg {
namespace {

struct Member {
  StrId op;  // the first one met
  bool has_more_ops = false, has_modules = false;
  int32_t layer = -1;
  bool is_single() const { return !has_modules && !has_more_ops; }
};

struct Stack {
  std::map<int32_t, Member> members;  // by number
  bool is_chain_of_singles = false;
};

// Whether the op is the module's own work, as opposed to feeding it data.
bool is_own_op(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  if (op == nullptr) return true;
  return op->has(kPure) && !op->has(kView) && !op->has(kSize) && !op->has(kCollective) && !op->has(kWait) &&
         op->name != "aten._to_copy.default";
}

bool is_chain(const Stack& stack) {
  size_t singles = 0;
  for (const auto& [number, member] : stack.members) {
    if (member.has_modules) return false;
    singles += member.is_single();
  }
  return 2 * singles > stack.members.size();
}

void add_op(const Graph& graph, NodeId n, Member* member) {
  if (!is_own_op(graph, n)) return;
  const CopyOf& copy = graph.meta(n).copy;
  const StrId name = copy.kind == CopyKind::remat ? copy.of : graph.node(n).label;
  if (member->op.is_none()) member->op = name;
  member->has_more_ops |= member->op != name;
}

void number_chain(Stack* stack, int32_t* next) {
  const size_t count = stack->members.size();
  const size_t stretches = static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  const size_t length = (count + stretches - 1) / stretches;
  const size_t last = (count - 1) / length;
  size_t i = 0;
  for (auto& [number, member] : stack->members)
    if (const size_t stretch = i++ / length; stretch < last) member.layer = *next + static_cast<int32_t>(stretch);
  *next += static_cast<int32_t>(last);
}

void number_layers(Stack* stack, int32_t* next) {
  const bool has_modules =
      std::ranges::any_of(stack->members, [](const auto& entry) { return entry.second.has_modules; });
  for (auto& [number, member] : stack->members)
    if (!has_modules || !member.is_single()) member.layer = (*next)++;
}

}  // namespace

Layers::Layers(const Graph& graph) {
  std::vector<Stack> stacks;  // in the order in which the forward reaches them
  std::map<std::string_view, size_t> which;
  std::unordered_map<StrId, NumberedModule, IdHash> places;
  for (NodeId n : graph.nodes()) {
    const StrId module = graph.node(n).module;
    if (!module) continue;
    const auto [it, is_new] = places.try_emplace(module);
    if (is_new) it->second = numbered_module(graph.pool().strings[module]);
    const NumberedModule& place = it->second;
    if (place.number < 0 || !does_forward_work(graph, n)) continue;
    const auto [stack, is_first] = which.try_emplace(place.stack, stacks.size());
    if (is_first) stacks.emplace_back();
    Member& member = stacks[stack->second].members[place.number];
    member.has_modules |= !place.inside.empty();
    add_op(graph, n, &member);
  }
  for (Stack& stack : stacks) stack.is_chain_of_singles = is_chain(stack);
  const bool has_layers = std::ranges::any_of(stacks, [](const Stack& stack) { return !stack.is_chain_of_singles; });
  int32_t next = 0;
  for (Stack& stack : stacks) {
    if (!stack.is_chain_of_singles) number_layers(&stack, &next);
    else if (!has_layers) number_chain(&stack, &next);
  }
  for (const auto& [module, place] : places) {
    const auto stack = which.find(place.stack);
    if (place.number < 0 || stack == which.end()) continue;
    const auto member = stacks[stack->second].members.find(place.number);
    if (member != stacks[stack->second].members.end() && member->second.layer >= 0)
      by_module_[module] = member->second.layer;
  }
}

}  // namespace sg
