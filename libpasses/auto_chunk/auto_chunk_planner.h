// AutoPlanner: makes an AutoPlan. Internal to auto_chunk_plan.
//
// auto_chunk_states.cc  the states of what depends on the amplifier
// auto_chunk_body.cc    which of it is the body, and what leaves it
// auto_chunk_place.cc   where the calls can stand
#pragma once

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "libgraph/facts/alias.h"
#include "libgraph/operands.h"
#include "libpasses/auto_chunk/amplifiers.h"
#include "libpasses/auto_chunk/auto_chunk_plan.h"
#include "libpasses/auto_chunk/auto_chunk_rewrite.h"
#include "libpasses/axis/axis_rules.h"

namespace sg {

inline bool is_tensor(const Graph& graph, ValueId v) { return graph.type(v).kind == TypeKind::tensor; }

class AutoPlanner {
 public:
  AutoPlanner(Program* program, NodeId amplifier, const AutoCut& cut)
      : program_(*program), graph_(program->graph), rewriter_(program), sizes_(assumed_sizes(*program)) {
    plan_.amplifier = amplifier, plan_.cut = cut;
    AxisDomain rows;
    rows.size = cut.rows;
    plan_.world.add_domain(rows);
    plan_.elements = elements(graph_.node(amplifier).result(0));
  }

  // The number of chunked nodes after the amplifier: how far a failed plan got.
  size_t reached() const { return reached_; }

  Result<AutoPlan> run() {
    forget_recomputation();
    grow();
    find_fills();
    SG_TRY(walk());
    SG_TRY(collect_body());
    reached_ = nodes_.size();
    share_equal_operands();
    SG_TRY(check_body());
    find_results();
    SG_TRY(check_results());
    SG_TRY(find_place());
    return std::move(plan_);
  }

 private:
  AxisState& state(ValueId v) { return plan_.world.states[v.index]; }
  int64_t elements(ValueId v) const { return element_count(graph_.pool(), graph_.type(v), sizes_).value_or(0); }
  bool is_large(ValueId v) const { return is_tensor(graph_, v) && elements(v) > plan_.elements / 2; }
  bool makes_large(NodeId n) const { return graph_.node(n).result_count == 1 && is_large(graph_.node(n).result(0)); }
  bool is_large_chunked(ValueId v) { return depends_[v.index] && state(v).kind == AxisKind::along && is_large(v); }
  bool depends(NodeId n) const {
    bool out = n == plan_.amplifier;
    for_operands(graph_, n, [&](ValueId v) { out = out || depends_[v.index]; });
    return out;
  }

  void grow();
  Error refuse(NodeId n, std::string_view rule, const std::string& why) const;
  // Memory that is written after it was made; waits do not count.
  std::unordered_set<uint32_t> written_classes(const AliasAnalysis& alias) const;
  // Equal now and later.
  static bool are_exchangeable(const AliasAnalysis& alias, const std::unordered_set<uint32_t>& written, ValueId a,
                               ValueId b);
  // A head that is recomputed in the backward is computed once in a chunk.
  void forget_recomputation();

  // Fills are made at the size of a chunk where one is wanted.
  void find_fills();
  void mark_fill(NodeId n);

  // --- states ---

  Status walk();
  bool push_down(NodeId n);
  void note(NodeId n, Result<AutoNode> chunked);
  Result<AutoNode> visit(NodeId n);
  Status run_rule(AxisCall& call, const AxisRow* row) const;
  void make_fill(ValueId v, const AxisState& s);

  // A value that is as large as the amplifier's result, and does not depend on it, is computed in the body instead of
  // being sliced.
  void join_producers(AutoNode* node) {
    std::erase_if(node->slices, [&](const SliceWish& wish) { return join(wish.value, wish.along, 0); });
  }

  // Computes `v` in the body, for all of the body, in chunks; false: it is sliced instead.
  bool join(ValueId v, const Along& wanted, int depth);
  // `n` with an operand sliced so that its result is chunked as wanted. `with_fills`: the fills it takes are also
  // created in the body.
  std::optional<AutoNode> made_along(NodeId n, const Along& wanted, bool with_fills);

  // --- the body ---

  Status collect_body();

  void add(AutoNode node) {
    plan_.is_body[node.node.index] = true;
    plan_.body.push_back(std::move(node));
  }

  void add_producers(NodeId n);

  bool is_made_in_body(ValueId v) const {
    const NodeId def = graph_.value(v).def;
    return def && plan_.is_body[def.index];
  }

  // What was recomputed for the backward is there already.
  void share_equal_operands();
  Status check_body();
  // A chunk waits itself for what it launches.
  Status check_collective(NodeId n);
  // Taken by others than the body.
  bool is_shared(ValueId v) const;
  void find_results();

  // Made again in the body; the rest of the step keeps its own.
  bool is_joined(NodeId n) const { return joined_.contains(n); }

  Status check_results();

  // --- the place ---

  Status find_place();
  // Nodes that are reordered must not access the same memory. Whether collectives may be is checked across ranks.
  Status check_moves(const std::vector<NodeId>& order, uint32_t first, uint32_t place, uint32_t end);
  // Each result is copied out separately, so a later write to one must not be meant for another.
  Status check_written_results(const AliasAnalysis& alias);

  static constexpr size_t kNone = SIZE_MAX;

  Program& program_;
  Graph& graph_;
  ChunkRewriter rewriter_;
  SizeValues sizes_;
  AutoPlan plan_;
  std::vector<bool> depends_, unknown_;       // by value: on the amplifier; its state is not known
  std::vector<size_t> at_;                    // by node: into nodes_
  std::vector<AutoNode> nodes_;               // all that depends on the amplifier, in schedule order
  std::vector<std::optional<Error>> errors_;  // by nodes_: why it is not chunked
  size_t reached_ = 0;
  std::unordered_map<NodeId, AutoNode, IdHash> joined_;
};

}  // namespace sg
