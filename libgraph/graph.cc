#include "libgraph/graph.h"

#include <algorithm>
#include <cassert>

#include "libgraph/base/large_pages.h"
#include "libgraph/op_name.h"
#include "libgraph/operand_place.h"

namespace sg {
namespace {

constexpr uint64_t kFirstPosition = uint64_t{1} << 62;
constexpr uint64_t kAppendGap = uint64_t{1} << 24;

}  // namespace

Graph::Graph(const Graph& other, Pool* pool)
    : pool_(pool),
      slots_(other.slots_),
      values_(other.values_),
      uses_(other.uses_),
      free_use_(other.free_use_),
      output_use_(other.output_use_),
      inputs_(other.inputs_),
      outputs_(other.outputs_),
      value_named_(other.value_named_),
      node_labelled_(other.node_labelled_),
      next_suffix_(other.next_suffix_),
      first_(other.first_),
      last_(other.last_),
      count_(other.count_) {}

// --- reading ---

NodeId Graph::only_user(ValueId v) const {
  return value(v).use_count == 1 ? uses_[value(v).first_use].use.user : NodeId();
}

bool Graph::has_used_result(NodeId n) const {
  for (uint32_t i = 0; i < node(n).result_count; ++i)
    if (is_used(node(n).result(i))) return true;
  return false;
}

std::vector<NodeId> Graph::users(ValueId v) const {
  std::vector<NodeId> out;
  for_each_use(v, [&](const Use& use) {
    if (use.user) out.push_back(use.user);
  });
  std::sort(out.begin(), out.end(), [&](NodeId a, NodeId b) { return before(a, b); });
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

ValueId Graph::find_value(std::string_view name) const {
  StrId id = pool_->strings.find(name);
  const ValueId* v = id ? value_named_.find(id) : nullptr;
  return v ? *v : ValueId();
}

NodeId Graph::find_node(std::string_view label) const {
  StrId id = pool_->strings.find(label);
  if (!id) return NodeId();
  if (const ValueId* v = value_named_.find(id)) return value(*v).def;
  const NodeId* n = node_labelled_.find(id);
  return n ? *n : NodeId();
}

// --- inputs and outputs ---

ValueId Graph::add_input(std::string_view name, TypeId type, Input input) {
  ValueId v =
      new_value(fresh_name(name.empty() ? "input" : name), type, NodeId(), static_cast<uint32_t>(inputs_.size()));
  input.value = v;
  inputs_.push_back(std::move(input));
  return v;
}

void Graph::remove_input(size_t index) {
  ValueId v = inputs_[index].value;
  assert(!is_used(v));
  value_named_.erase(value(v).name);
  inputs_.erase(inputs_.begin() + static_cast<ptrdiff_t>(index));
  for (size_t i = index; i < inputs_.size(); ++i) values_[inputs_[i].value.index].index = static_cast<uint32_t>(i);
  for (Output& o : outputs_)
    if (o.of == v) o.of = ValueId();
}

void Graph::add_output(Output output) {
  uint32_t index = static_cast<uint32_t>(outputs_.size());
  output_use_.push_back(output.value ? add_use(output.value, {NodeId(), index}) : kNoUse);
  outputs_.push_back(std::move(output));
}

void Graph::set_output_value(size_t index, ValueId v) {
  if (output_use_[index] != kNoUse) remove_use(output_use_[index]);
  outputs_[index].value = v;
  output_use_[index] = v ? add_use(v, {NodeId(), static_cast<uint32_t>(index)}) : kNoUse;
}

// --- nodes ---

NodeId Graph::insert_before(NodeId position, NodeSpec spec) {
  NodeId n(static_cast<uint32_t>(slots_.size()));
  slots_.emplace_back();
  uint32_t count = static_cast<uint32_t>(spec.result_types.size());
  bool single = count == 1 && !spec.is_tuple;

  const auto wish = [&](uint32_t i) {
    return i < spec.names.size() ? std::string_view(spec.names[i]) : std::string_view();
  };
  const std::string_view own = spec.label.empty() ? base_name(pool_->op_name(spec.op)) : std::string_view(spec.label);
  // The result whose name is the node's, too; `count` where the label is a name of its own.
  uint32_t namesake = 0;
  if (!single && !(spec.label.empty() && !wish(0).empty()))
    while (namesake < count && (spec.label.empty() || wish(namesake) != spec.label)) ++namesake;

  const ValueId first(static_cast<uint32_t>(values_.size()));
  StrId label;  // known once the namesake has its name
  if (namesake >= count) {
    label = fresh_name(own);
    node_labelled_.try_emplace(label, n);
  }
  for (uint32_t i = 0; i < count; ++i) {
    std::string name(wish(i));
    if (name.empty()) name = label ? pool_->strings[label] : own;
    if (wish(i).empty() && i != namesake) name += "." + std::to_string(i);
    const StrId given = fresh_name(name);
    new_value(given, spec.result_types[i], n, i);
    if (i == namesake) label = given;
  }

  Node& node = slots_[n.index].node;
  node.op = spec.op;
  node.args = std::move(spec.args);
  node.label = label;
  node.first_result = first;
  node.result_count = count;
  node.is_tuple = spec.is_tuple;
  node.phase = spec.phase;
  node.module = spec.module;
  node.source = spec.source;
  node.meta = spec.meta;
  node.forward = spec.forward;
  add_arg_uses(n);
  link_before(n, position);
  ++count_;
  return n;
}

NodeId Graph::append_exact(Node node, std::span<const StrId> names, std::span<const TypeId> types) {
  if (node.label.is_none() && !names.empty()) node.label = names[0];
  NodeId n(static_cast<uint32_t>(slots_.size()));
  node.first_result = ValueId(static_cast<uint32_t>(values_.size()));
  node.result_count = static_cast<uint32_t>(names.size());
  for (uint32_t i = 0; i < names.size(); ++i) {
    bool is_free = names[i] && names[i] != StringTable::kEmpty && !node_labelled_.contains(names[i]) &&
                   value_named_.try_emplace(names[i], node.result(i)).second;
    if (!is_free) return forget_values(node.first_result);
    values_.push_back({names[i], types[i], n, i});
  }
  bool is_own_result = std::find(names.begin(), names.end(), node.label) != names.end();
  bool has_label =
      node.label && node.label != StringTable::kEmpty &&
      (is_own_result || (!value_named_.contains(node.label) && node_labelled_.try_emplace(node.label, n).second));
  if (!has_label) return forget_values(node.first_result);
  slots_.emplace_back();
  slots_.back().node = std::move(node);
  add_arg_uses(n);
  link_before(n, NodeId());
  ++count_;
  return n;
}

NodeId Graph::forget_values(ValueId first) {
  for (uint32_t i = first.index; i < values_.size(); ++i) value_named_.erase(values_[i].name);
  values_.resize(first.index);
  return NodeId();
}

void Graph::reserve(size_t nodes, size_t values) {
  auto reserve_large = [](auto& list, size_t count) {
    list.reserve(count);
    advise_large_pages(list.data(), list.capacity() * sizeof(list[0]));
  };
  reserve_large(slots_, nodes);
  reserve_large(values_, values);
  reserve_large(uses_, 2 * nodes);
  value_named_.reserve(values);
}

void Graph::erase(NodeId n) {
  Node& node = slots_[n.index].node;
  remove_arg_uses(n);
  for (uint32_t i = 0; i < node.result_count; ++i) {
    assert(!is_used(node.result(i)));
    value_named_.erase(value(node.result(i)).name);
  }
  node_labelled_.erase(node.label);
  unlink(n);
  slots_[n.index].alive = false;
  node.args = {};
  --count_;
}

void Graph::move_before(NodeId n, NodeId position) {
  if (n == position || next(n) == position) return;
  unlink(n);
  link_before(n, position);
}

void Graph::move_after(NodeId n, NodeId position) {
  if (n != position) move_before(n, next(position));
}

void Graph::set_args(NodeId n, std::vector<Arg> args) {
  remove_arg_uses(n);
  slots_[n.index].node.args = std::move(args);
  add_arg_uses(n);
}

void Graph::replace_uses(ValueId from, ValueId to) {
  if (from == to) return;
  while (value(from).first_use != kNoUse) {
    Use use = uses_[value(from).first_use].use;
    if (use.user) replace_uses_in(use.user, from, to);
    else set_output_value(use.output, to);
  }
}

// Walks the operands of `user` or the uses of `from`, whichever are fewer, and leaves all other uses alone.
void Graph::replace_uses_in(NodeId user, ValueId from, ValueId to) {
  if (from == to) return;
  auto relink = [&](uint32_t u) {
    const Use use = uses_[u].use;
    const uint32_t next_of_node = uses_[u].next_of_node;
    operand_place::set(slots_[user.index].node.args, use.output, from, to);
    remove_use(u);
    [[maybe_unused]] const uint32_t again = add_use(to, use);
    assert(again == u);  // free links are a stack: the chain of the node goes on through it
    uses_[u].next_of_node = next_of_node;
  };
  uint32_t u = slots_[user.index].first_use;
  for (uint32_t left = value(from).use_count; u != kNoUse && left > 0; --left) {
    const uint32_t next = uses_[u].next_of_node;
    if (uses_[u].value == from) relink(u);
    u = next;
  }
  if (u == kNoUse) return;
  for (u = value(from).first_use; u != kNoUse;) {
    const uint32_t next = uses_[u].next;
    if (uses_[u].use.user == user) relink(u);
    u = next;
  }
}

// --- names ---

bool Graph::rename(ValueId v, std::string_view name) {
  StrId id = pool_->str(name);
  Value& val = values_[v.index];
  if (val.name == id) return true;
  if (name.empty() || has_name(id)) return false;
  value_named_.erase(val.name);
  value_named_.try_emplace(id, v);
  if (val.def && node(val.def).label == val.name) slots_[val.def.index].node.label = id;
  val.name = id;
  return true;
}

bool Graph::relabel(NodeId n, std::string_view label) {
  StrId id = pool_->str(label);
  Node& node = slots_[n.index].node;
  if (node.label == id) return true;
  const ValueId* namesake = value_named_.find(id);
  bool is_own_result = namesake && value(*namesake).def == n;
  if (label.empty() || (has_name(id) && !is_own_result)) return false;
  node_labelled_.erase(node.label);
  if (!is_own_result) node_labelled_.try_emplace(id, n);
  node.label = id;
  return true;
}

StrId Graph::fresh_name(std::string_view wish) {
  StrId id = pool_->str(wish);
  if (!has_name(id)) return id;
  uint32_t& suffix = *next_suffix_.try_emplace(id, 0).first;
  for (;;) {
    StrId candidate = pool_->str(std::string(wish) + "_" + std::to_string(++suffix));
    if (!has_name(candidate)) return candidate;
  }
}

ValueId Graph::new_value(StrId name, TypeId type, NodeId def, uint32_t index) {
  ValueId v(static_cast<uint32_t>(values_.size()));
  values_.push_back({name, type, def, index});
  value_named_.try_emplace(name, v);
  return v;
}

// --- uses ---

uint32_t Graph::add_use(ValueId v, Use use) {
  uint32_t u = free_use_;
  if (u == kNoUse) {
    u = static_cast<uint32_t>(uses_.size());
    uses_.emplace_back();
  } else {
    free_use_ = uses_[u].next;
  }
  Value& val = values_[v.index];
  uses_[u] = {use, v, kNoUse, val.first_use, kNoUse};
  if (val.first_use != kNoUse) uses_[val.first_use].previous = u;
  val.first_use = u;
  ++val.use_count;
  return u;
}

void Graph::remove_use(uint32_t u) {
  UseLink& link = uses_[u];
  Value& val = values_[link.value.index];
  (link.previous == kNoUse ? val.first_use : uses_[link.previous].next) = link.next;
  if (link.next != kNoUse) uses_[link.next].previous = link.previous;
  --val.use_count;
  link.next = free_use_;
  free_use_ = u;
}

// A node's use keeps its operand's place as `output`.
void Graph::add_arg_uses(NodeId n) {
  operand_place::for_each(slots_[n.index].node.args, [&](const Arg& a, uint32_t place) {
    if (!a.is(ArgKind::value)) return;
    uint32_t u = add_use(a.as_value(), {n, place});
    uses_[u].next_of_node = slots_[n.index].first_use;
    slots_[n.index].first_use = u;
  });
}

void Graph::remove_arg_uses(NodeId n) {
  for (uint32_t u = slots_[n.index].first_use; u != kNoUse;) {
    uint32_t next = uses_[u].next_of_node;
    remove_use(u);
    u = next;
  }
  slots_[n.index].first_use = kNoUse;
}

// --- order ---

void Graph::link_before(NodeId n, NodeId position) {
  NodeId previous = position ? slots_[position.index].previous : last_;
  slots_[n.index].position = position_between(previous, position);
  slots_[n.index].previous = previous;
  slots_[n.index].next = position;
  (previous ? slots_[previous.index].next : first_) = n;
  (position ? slots_[position.index].previous : last_) = n;
}

void Graph::unlink(NodeId n) {
  Slot& slot = slots_[n.index];
  (slot.previous ? slots_[slot.previous.index].next : first_) = slot.next;
  (slot.next ? slots_[slot.next.index].previous : last_) = slot.previous;
}

uint64_t Graph::position_between(NodeId previous, NodeId next) {
  if (!previous && !next) return kFirstPosition;
  if (!next && slots_[previous.index].position < UINT64_MAX - kAppendGap)
    return slots_[previous.index].position + kAppendGap;
  if (!previous && slots_[next.index].position > kAppendGap) return slots_[next.index].position - kAppendGap;
  for (;;) {
    uint64_t low = previous ? slots_[previous.index].position : 0;
    uint64_t high = next ? slots_[next.index].position : UINT64_MAX;
    if (high - low >= 2) return low + (high - low) / 2;
    spread_positions(previous ? previous : next);
  }
}

// Makes room around a node: finds the smallest aligned window of positions that is sparse enough, and spaces its nodes
// evenly. The allowed density falls with the window's size, which makes the amortised cost of an insertion O(log n).
void Graph::spread_positions(NodeId around) {
  const double kFillBase = 1.5;  // a window of 2^i positions may hold 1.5^i nodes
  double allowed = kFillBase * kFillBase * kFillBase;
  NodeId low = around, high = around;
  size_t count = 1;
  for (int bits = 3; bits <= 63; ++bits, allowed *= kFillBase) {
    uint64_t size = uint64_t{1} << bits;
    uint64_t base = slots_[around.index].position & ~(size - 1);
    for (NodeId p = previous(low); p && slots_[p.index].position >= base; p = previous(p)) low = p, ++count;
    for (NodeId s = next(high); s && slots_[s.index].position - base < size; s = next(s)) high = s, ++count;
    if (static_cast<double>(count) > allowed || size / count < 4) continue;
    uint64_t step = size / count, position = base + step / 2;
    for (NodeId n = low;; n = next(n), position += step) {
      slots_[n.index].position = position;
      if (n == high) return;
    }
  }
}

}  // namespace sg
