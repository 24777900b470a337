// Graph: an ordered list of nodes over values; the form that every pass touches.
//
// Order    The list order is the schedule. Insert, erase and move are O(1) (amortised); `before(a, b)` is O(1).
// Values   Inputs and node results. Each has a name that is unique in its graph, a type, and its uses in a linked list:
//          adding, removing and walking uses never searches.
// Ids      NodeId and ValueId stay valid until the node is erased and are never used again, so a stale id is detectable
//          with `alive`. References returned by node() and value() are invalid after the next insertion.
// Owner    A Graph belongs to a Program (job.h), which belongs to a Job, whose Pool all its ids refer to.
// Threads  None: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "libgraph/arg.h"
#include "libgraph/base/flat_map.h"
#include "libgraph/base/ids.h"
#include "libgraph/pool.h"

namespace sg {

// All enums: the order is the value in the file, append only.
enum class InputKind : uint8_t { user, parameter, buffer, optimizer_state, tangent, constant, opaque };
enum class OutputKind : uint8_t { other, loss, gradient, buffer, none, opaque };

// How a local tensor is a part of a global one. Placements are PyTorch's: "S(0)", "R", "P(sum)", "_S(0, 4)".
struct Sharding {
  std::vector<Expr> global_shape;
  std::vector<StrId> placements;  // one a mesh axis
  std::vector<StrId> mesh_axes;   // same length
  bool empty() const { return global_shape.empty() && placements.empty() && mesh_axes.empty(); }
  friend bool operator==(const Sharding&, const Sharding&) = default;
};

struct Input {
  ValueId value;
  InputKind kind = InputKind::user;
  StrId fqn;  // "layers.0.wq.weight", or the user's argument name; none = nameless
  Sharding sharding;
  StrId of;                     // opaque inputs: FQN of the parameter it describes
  StrId attribute;              // opaque inputs: which attribute of it, e.g. "device_mesh"
  StrId digest;                 // constants: what they hold (constant_data.h)
  std::vector<KeyValue> extra;  // sorted by key
};

struct Output {
  ValueId value;  // none = no value (a null gradient)
  OutputKind kind = OutputKind::other;
  ValueId of;     // gradient, buffer, opaque: the input it belongs to; none = not said
  StrId of_name;  // set instead of `of` when the capture names something that is no input
  Sharding sharding;
  StrId attribute;              // opaque outputs
  std::vector<KeyValue> extra;  // sorted by key
};

// Set on creation, read by everybody; change through Graph's setters, which keep uses and names right.
struct Node {
  OpId op;
  std::vector<Arg> args;  // positional first, then keyword arguments (those with a key)
  StrId label;            // unique name of the node; the first result's name unless told otherwise
  ValueId first_result;   // results have consecutive ids
  uint32_t result_count = 0;
  bool is_tuple = false;  // the op returns a list or tuple, even of one or none
  Phase phase = Phase::forward;
  StrId module;     // FQN; none = outside any module
  SourceId source;  // none = unknown
  MetaId meta{0};   // the rest; Pool::metas
  NodeId forward;   // backward nodes: the forward node they belong to; none = not known

  ValueId result(uint32_t i) const { return ValueId(first_result.index + i); }
};

struct Value {
  StrId name;
  TypeId type{0};
  NodeId def;                        // none = a graph input
  uint32_t index = 0;                // which result, or which input
  uint32_t first_use = 0xFFFFFFFFu;  // head of the use list (internal)
  uint32_t use_count = 0;
};

// What a new node is made from; the graph assigns ids, names and uses.
struct NodeSpec {
  OpId op;
  std::vector<Arg> args;
  std::vector<TypeId> result_types;
  std::vector<std::string> names;  // wished for, one a result; made unique. Missing ones follow from the label
  std::string label;               // wished for; empty = the first name, else from the op's name
  bool is_tuple = false;
  Phase phase = Phase::forward;
  StrId module;
  SourceId source;
  MetaId meta{0};
  NodeId forward;
};

struct Use {
  NodeId user;          // none = a graph output
  uint32_t output = 0;  // which output, when user is none
};

class Graph {
 public:
  explicit Graph(Pool* pool) : pool_(pool) {}
  Graph(const Graph& other, Pool* pool);  // deep copy over a copied pool: all ids stay the same
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;

  Pool& pool() const { return *pool_; }

  // --- reading ---
  const Node& node(NodeId n) const { return slots_[n.index].node; }
  const Value& value(ValueId v) const { return values_[v.index]; }
  const Type& type(ValueId v) const { return pool_->types[value(v).type]; }
  const NodeMeta& meta(NodeId n) const { return pool_->metas[node(n).meta]; }
  std::string_view name(ValueId v) const { return pool_->strings[value(v).name]; }
  std::string_view label(NodeId n) const { return pool_->strings[node(n).label]; }
  std::string_view op_name(NodeId n) const { return pool_->op_name(node(n).op); }
  const OpInfo* op_info(NodeId n) const { return pool_->ops[node(n).op].info; }

  NodeId first() const { return first_; }
  NodeId last() const { return last_; }
  NodeId next(NodeId n) const { return slots_[n.index].next; }
  NodeId previous(NodeId n) const { return slots_[n.index].previous; }
  bool alive(NodeId n) const { return n.index < slots_.size() && slots_[n.index].alive; }
  bool before(NodeId a, NodeId b) const { return slots_[a.index].position < slots_[b.index].position; }
  size_t node_count() const { return count_; }
  size_t node_id_limit() const { return slots_.size(); }  // ids are below this: size for side vectors
  size_t value_id_limit() const { return values_.size(); }

  // for (NodeId n : graph.nodes()): the current node may be erased or moved while iterating.
  class NodeIterator {
   public:
    NodeIterator(const Graph* g, NodeId n) : graph_(g), node_(n) { load(); }
    NodeId operator*() const { return node_; }
    NodeIterator& operator++() {
      node_ = next_;
      load();
      return *this;
    }
    bool operator!=(const NodeIterator& other) const { return node_ != other.node_; }

   private:
    void load() { next_ = node_.is_none() ? NodeId() : graph_->next(node_); }
    const Graph* graph_;
    NodeId node_, next_;
  };
  struct NodeRange {
    const Graph* graph;
    NodeIterator begin() const { return {graph, graph->first()}; }
    NodeIterator end() const { return {graph, NodeId()}; }
  };
  NodeRange nodes() const { return {this}; }

  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }

  // Calls fn(Use) for each use of v: once per occurrence in a node's arguments, once per output. Latest first.
  template <class Fn>
  void for_each_use(ValueId v, const Fn& fn) const {
    for (uint32_t u = value(v).first_use; u != kNoUse;) {
      uint32_t next = uses_[u].next;
      fn(uses_[u].use);
      u = next;
    }
  }
  std::vector<NodeId> users(ValueId v) const;  // distinct nodes in schedule order; outputs left out
  NodeId only_user(ValueId v) const;           // takes it once, and nothing else does; none = there is no such node
  bool is_used(ValueId v) const { return value(v).use_count != 0; }
  bool has_used_result(NodeId n) const;

  ValueId find_value(std::string_view name) const;  // none when there is no such result or input
  NodeId find_node(std::string_view label) const;   // by label, or by the name of a result

  // --- writing ---
  ValueId add_input(std::string_view name, TypeId type, Input input);  // input.value is set here
  void add_output(Output output);
  void set_output_value(size_t index, ValueId v);
  void remove_input(size_t index);                          // REQUIRES: not used; opaque inputs too
  Input& mutable_input(size_t i) { return inputs_[i]; }     // all but `value`
  Output& mutable_output(size_t i) { return outputs_[i]; }  // all but `value`

  NodeId append(NodeSpec spec) { return insert_before(NodeId(), std::move(spec)); }
  NodeId insert_before(NodeId position, NodeSpec spec);  // none = at the end
  NodeId insert_after(NodeId position, NodeSpec spec) { return insert_before(next(position), std::move(spec)); }
  // For readers of files: appends `node` as it stands; `names` and `types` are those of its results. An empty label
  // means the first result's name. Adds nothing and returns none when a name is none, empty or taken.
  NodeId append_exact(Node node, std::span<const StrId> names, std::span<const TypeId> types);
  void reserve(size_t nodes, size_t values);
  bool has_name(StrId name) const { return value_named_.contains(name) || node_labelled_.contains(name); }
  void erase(NodeId n);                         // REQUIRES: no result is used
  void move_before(NodeId n, NodeId position);  // none = to the end
  void move_after(NodeId n, NodeId position);

  void set_args(NodeId n, std::vector<Arg> args);
  void set_op(NodeId n, OpId op) { slots_[n.index].node.op = op; }
  void set_type(ValueId v, TypeId type) { values_[v.index].type = type; }
  void set_meta(NodeId n, NodeMeta meta) { slots_[n.index].node.meta = pool_->metas.intern(std::move(meta)); }
  void set_phase(NodeId n, Phase p) { slots_[n.index].node.phase = p; }
  void set_module(NodeId n, StrId m) { slots_[n.index].node.module = m; }
  void set_source(NodeId n, SourceId s) { slots_[n.index].node.source = s; }
  void set_forward(NodeId n, NodeId f) { slots_[n.index].node.forward = f; }
  void replace_uses(ValueId from, ValueId to);  // in nodes and outputs
  void replace_uses_in(NodeId user, ValueId from, ValueId to);

  // Names. rename and relabel fail (false) when the name is taken or empty.
  bool rename(ValueId v, std::string_view name);
  bool relabel(NodeId n, std::string_view label);
  StrId fresh_name(std::string_view wish);  // `wish`, or `wish_1`, `wish_2`, ...: not yet taken here

 private:
  static constexpr uint32_t kNoUse = 0xFFFFFFFFu;
  struct Slot {
    Node node;
    NodeId previous, next;
    uint64_t position = 0;        // order label: increases along the list, with gaps
    uint32_t first_use = kNoUse;  // head of the chain of uses in its arguments
    bool alive = true;
  };
  struct UseLink {  // in two chains: the uses of a value, and those of a node
    Use use;
    ValueId value;
    uint32_t previous = kNoUse, next = kNoUse;
    uint32_t next_of_node = kNoUse;
  };

  ValueId new_value(StrId name, TypeId type, NodeId def, uint32_t index);
  uint32_t add_use(ValueId v, Use use);
  void remove_use(uint32_t use);
  NodeId forget_values(ValueId first);  // undoes new_value from `first` on; returns none
  void add_arg_uses(NodeId n);
  void remove_arg_uses(NodeId n);
  void link_before(NodeId n, NodeId position);
  void unlink(NodeId n);
  uint64_t position_between(NodeId previous, NodeId next);
  void spread_positions(NodeId around);

  Pool* pool_;
  std::vector<Slot> slots_;
  std::vector<Value> values_;
  std::vector<UseLink> uses_;
  uint32_t free_use_ = kNoUse;        // unused links, chained through `next`
  std::vector<uint32_t> output_use_;  // by output
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  FlatMap<StrId, ValueId> value_named_;
  FlatMap<StrId, NodeId> node_labelled_;  // nodes whose label is no result's name
  FlatMap<StrId, uint32_t> next_suffix_;
  NodeId first_, last_;
  size_t count_ = 0;
};

}  // namespace sg
