// AutoOutliner: replaces a body by calls. Internal to auto_chunk_outline.
//
// auto_chunk_outline.cc  slices of the inputs, tensors for the outputs
// auto_chunk_calls.cc    calls and their bodies
// auto_chunk_results.cc  redirects the users of the results, and erases the originals
#pragma once

#include <map>
#include <optional>
#include <unordered_map>

#include "libpasses/auto_chunk/auto_chunk_builder.h"
#include "libpasses/auto_chunk/auto_chunk_outline.h"

namespace sg {

class AutoOutliner {
 public:
  AutoOutliner(Program* program, const AutoPlan& plan, const AutoCuts& cuts, bool sums_in_f32)
      : program_(*program),
        graph_(program->graph),
        pool_(graph_.pool()),
        plan_(plan),
        cuts_(cuts),
        sums_in_f32_(sums_in_f32),
        main_(program, &program->graph) {}

  Result<AutoCounts> run() {
    main_.position = place();
    collect_inputs();
    SG_TRY(cut_inputs());
    SG_TRY(make_results());
    for (int64_t c = 0; c < chunks(); ++c) SG_TRY(call(c));
    SG_TRY(replace_results());
    for (NodeId n : plan_.behind) graph_.move_before(n, main_.position);
    for (NodeId n : dead_) graph_.erase(n);
    erase_body();
    return counts_;
  }

 private:
  using ValueMap = std::unordered_map<ValueId, ValueId, IdHash>;
  using NodeMap = std::unordered_map<NodeId, NodeId, IdHash>;

  // An operand of the body: whole, or a slice per chunk.
  struct In {
    ValueId value;
    std::optional<Along> along;
    std::vector<ValueId> parts;  // by chunk; empty if whole
  };
  struct Out {
    ValueId value;  // of the body
    bool is_sum = false;
    Along along;
    ValueId whole;               // the tensor written to; of a sum, its latest value
    std::vector<ValueId> parts;  // by chunk; unused for sums
  };

  int64_t chunks() const { return static_cast<int64_t>(cuts_.sizes.size()); }
  const AxisState& state(ValueId v) const { return plan_.world.states[v.index]; }
  bool is_body(NodeId n) const { return n && n.index < plan_.is_body.size() && plan_.is_body[n.index]; }
  Expr extent(const Along& a, int64_t c) const { return a.length(&pool_.exprs, cuts_.sizes[static_cast<size_t>(c)]); }

  // The node before which the calls stand; not one of the body's, which are erased.
  NodeId place() const;
  NodeSpec like_call(int64_t index, std::string_view role) const;
  std::string region() const;

  // --- inputs ---

  static const SliceWish* wish_for(const AutoNode& body, ValueId v) {
    for (const SliceWish& wish : body.slices)
      if (wish.value == v) return &wish;
    return nullptr;
  }

  // A known number or size expression, which goes into the body as a literal.
  std::optional<Arg> as_number(ValueId v) const;
  void collect_inputs();
  const In* find_input(ValueId v, const std::optional<Along>& along) const;
  // Of the chunks of an axis in runs: [batch, part of the length], as [batch * length] cannot be sliced.
  Result<std::vector<ValueId>> cut(ValueId v, const Along& along, std::string_view role);
  // The shape with the axis split in two: the runs, and one run of so many entries.
  std::vector<Expr> runs_apart(std::vector<Expr> shape, const Along& along, Expr entries) const;
  Status cut_inputs();

  // --- outputs ---

  DType sum_type(DType own) const;
  Status make_results();

  // --- the body ---

  Status call(int64_t c);
  // One body for each chunk size.
  Result<NestedId> body_of(int64_t c);
  ValueId add_input(Graph* body, ValueId given, std::string_view name);
  Status fill_body(Graph* body, int64_t c);
  // A part as `cut` makes it, as the body's nodes take it.
  Result<ValueId> put_together(ValueId part, const In& in, ChunkBuilder* builder);
  // sum += part. A product without other users is fused with the addition, and so never materialized.
  Result<ValueId> add_to(ValueId sum, ValueId part, const std::string& name, ChunkBuilder* builder);

  NodeSpec spec_in(const AutoNode& node, int64_t c, const std::vector<ValueId>& ins, const ValueMap& made,
                   const NodeMap& copies);
  // The op's type rule must confirm what the axis rule proved.
  Status check_part(NodeId n, ValueId whole, const Type& part, int64_t c) const;

  // --- after the calls ---

  Status replace_results();
  void replace(ValueId v, ValueId by);
  Status move_views(ValueId v, ValueId by);
  // The only user outside of the body; none if there are several, or the value is an output of the step.
  NodeId only_user(ValueId v) const;
  // If views and a cast to the sum's type follow, replaces them by views of the sum.
  bool hand_on(const Out& out);
  // The body's originals, and nodes that only they used.
  void erase_body();

  Program& program_;
  Graph& graph_;
  Pool& pool_;
  const AutoPlan& plan_;
  const AutoCuts& cuts_;
  bool sums_in_f32_;
  ChunkBuilder main_;
  std::vector<In> ins_;
  std::vector<Out> outs_;
  std::vector<NodeId> dead_;             // casts replaced by the sum itself
  std::map<uint32_t, NestedId> bodies_;  // by the rows of a chunk
  AutoCounts counts_;
};

}  // namespace sg
