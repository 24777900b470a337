// Rewrites nodes that the axis rules cannot chunk into equivalent nodes that they can. Internal to sg-chunk --auto.
//
// Losses    a mean over the rows becomes a sum over the rows, divided after the region by a count that depends only on
//           the labels, or by the number of elements
// Labels    x[arange(rows), label], read or written, becomes a gather or a scatter along the classes
// Backward  the gradient of log-softmax after negative log-likelihood is computed in one buffer instead of two
// Sizes     of chunked values are put in as numbers
// Likes     ones_like and its kin no longer wait for the loss whose type they copy
// Shapes    [batch, length, vocabulary] views of flat rows: elementwise ops run on the flat rows, and the views cancel
// Unused    rows that a slice drops right behind the product are not computed
#pragma once

#include <map>
#include <optional>
#include <span>

#include "libgraph/infer/infer.h"
#include "libgraph/job.h"

namespace sg {

class ChunkRewriter {
 public:
  explicit ChunkRewriter(Program* program);

  // Rewrites `n`, whose operands are chunked or sums, if it is one of the above, and erases it. Returns the first node
  // of the replacement; none if `n` stays.
  std::optional<NodeId> rewrite(NodeId n);

  // Rewrites `n` if it writes x[arange(rows), label]: as a scatter it can be created in chunks even if no operand is
  // chunked.
  std::optional<NodeId> rewrite_write(NodeId n);
  bool take_counts(NodeId n);

  // Moves the reshape `n` after the elementwise ops that take its result, so that it meets the inverse reshape. False
  // if it stays.
  bool push_down(NodeId n);

  // Computes only the rows of a product that a slice behind it takes, here and in the backward. False if there is no
  // such slice, or not all that happens to the rows is known: the program may be changed then; throw it away.
  bool leave_out_rows(NodeId product);

 private:
  struct Labels {
    ValueId ignored, safe;  // which rows do not count; the labels with 0 in those rows
    ValueId column;         // the safe labels as a column; none until requested
  };
  Labels& labels_of(NodeId before, ValueId target, int64_t ignored);
  ValueId label_column(NodeId before, Labels* labels);
  ValueId row_weights(NodeId before, ValueId weight, const Labels& labels);
  Arg shape_of(ValueId v) const;
  bool are_scores(ValueId self, ValueId target) const;
  ValueId total_weight(NodeId n, ValueId target, int64_t ignored, DType mean, ValueId row_weight);
  ValueId no_weight(ValueId total, const std::string& name, NodeId n);
  std::optional<NodeId> loss(NodeId n);
  std::optional<NodeId> folded_loss(NodeId n);
  ValueId row_scales(NodeId n, int64_t reduction, const Labels& labels);
  std::optional<NodeId> loss_backward(NodeId n);
  bool through_log_softmax(NodeId softmax, ValueId column, ValueId index, ValueId negative);
  std::optional<NodeId> pair_loss(NodeId n, bool is_backward);
  void set_reduction(NodeId n, std::vector<Arg>* args, int64_t reduction);
  ValueId column_of(NodeId n, ValueId self);
  std::optional<NodeId> picked(NodeId n);
  std::optional<NodeId> put(NodeId n);
  std::optional<NodeId> size(NodeId n);
  std::optional<NodeId> mean(NodeId n);
  std::optional<NodeId> like(NodeId n);
  std::optional<NodeId> fill(NodeId n);
  NodeId sole_log_softmax_backward(NodeId n) const;

  bool is_written(ValueId v) const { return v.index < written_.size() && written_[v.index]; }
  // Also of labels that were put together by writes, before anybody takes them.
  bool changes(ValueId v) const { return v.index < changes_.size() && changes_[v.index]; }
  const Arg* find(NodeId n, std::string_view name) const;
  ValueId tensor(NodeId n, std::string_view name) const;
  std::optional<int64_t> integer(NodeId n, std::string_view name) const;
  Arg keyword(std::string_view key, Arg arg) { return arg.set_key(pool_.str(key)); }
  Arg size_of(Expr e) const;
  // A node before `position` (none = the end), with the metadata of what stands there; types are inferred.
  NodeId make_node(std::string_view op, std::vector<Arg> args, std::span<const std::string> names, NodeId position);
  ValueId make(std::string_view op, std::vector<Arg> args, std::string_view name, NodeId position);
  // A sum that is divided later: in f32 where 16 bits would not hold it, though they hold the mean.
  static DType type_of_sum(DType mean);
  ValueId wide_sum(std::string_view op, std::vector<Arg> args, DType mean, std::string_view name, NodeId position);
  ValueId cast(ValueId v, DType to, std::string_view name, NodeId position);
  // Both return the first new node, from which to go on: `first_new`, or the one behind `before` (none = the first).
  NodeId replace(NodeId n, NodeId first_new, std::span<const ValueId> by);
  NodeId replace_from(NodeId before, NodeId n, std::span<const ValueId> by);
  NodeId from(NodeId before) const { return before ? graph_.next(before) : graph_.first(); }

  // A value as flat rows take it: viewed in a shape first, or as it is.
  struct Flattened {
    ValueId value;
    std::optional<std::vector<Expr>> shape;
  };
  std::optional<Flattened> flattened(ValueId v, const Type& whole, const Type& flat);
  ValueId make_flat(const Flattened& to, NodeId before);
  bool can_push_down(NodeId n);
  bool can_move_past(NodeId user, const Type& whole, const Type& flat);
  void move_past(NodeId user, ValueId whole, ValueId flat);

  // The rows [start, start + length) of each entry of the batch that a slice takes of a product.
  struct RowsTaken {
    size_t operand = 0;  // of the product: which argument has the rows
    std::vector<Expr> shape;
    std::vector<NodeId> between;  // first the view of the product
    NodeId slice;
    int64_t start = 0;
    Expr length;
  };
  // The gradient of such a slice: zeros are filled in, then come casts, a view as flat rows, and products and sums.
  struct RowsGiven {
    NodeId fill;
    std::vector<NodeId> between, users;
  };
  void forget_sizes(ValueId v);
  void merge_slices(ValueId v);
  void merge_fills();
  bool fills_nothing(NodeId n) const;
  std::optional<RowsTaken> rows_taken(NodeId product);
  std::optional<std::vector<RowsGiven>> rows_given(NodeId product, const RowsTaken& taken);
  bool give_rows(const RowsGiven& given, ValueId x, ValueId rows, const std::vector<Expr>& whole_shape, int64_t start,
                 Expr some);
  // Infers types again; true: they are others than before.
  bool retype(NodeId n);
  bool retype_behind(NodeId first);
  Arg list_of(std::span<const Expr> sizes) const;
  ValueId dense(ValueId v, NodeId before);

  Program& program_;
  Graph& graph_;
  Pool& pool_;
  TypeInferrer types_;
  std::map<std::pair<uint32_t, int64_t>, Labels> labels_;    // of a target, by the label that does not count
  std::map<std::pair<uint32_t, int64_t>, ValueId> columns_;  // by label and number of classes
  std::vector<bool> written_, changes_;  // by original value: its memory is written; from its first use on
  bool failed_ = false;                  // a type could not be inferred
};

// Replaces uses of a scalar by its number or expression. REQUIRES: its type holds it
void put_number(Graph* graph, ValueId v);

}  // namespace sg
