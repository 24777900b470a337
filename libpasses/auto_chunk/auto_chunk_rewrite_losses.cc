// Losses as sums over rows, their gradients in one buffer, and values picked from each row by its label.
#include "libgraph/op.h"
#include "libpasses/auto_chunk/auto_chunk_rewrite.h"
#include "libpasses/axis/axis_rules.h"

namespace sg {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

}  // namespace

Arg ChunkRewriter::shape_of(ValueId v) const {
  std::vector<Arg> sizes;
  for (const Expr e : graph_.type(v).shape) sizes.push_back(size_of(e));
  return Arg::list(std::move(sizes));
}

// --- one label per row ---

// [rows, classes, ...] and [rows, ...]
bool ChunkRewriter::are_scores(ValueId self, ValueId target) const {
  return graph_.type(self).shape.size() >= 2 && graph_.type(target).shape.size() + 1 == graph_.type(self).shape.size();
}

ChunkRewriter::Labels& ChunkRewriter::labels_of(NodeId before, ValueId target, int64_t ignored) {
  const auto [it, fresh] = labels_.try_emplace({target.index, ignored});
  if (!fresh) return it->second;
  Labels& out = it->second;
  const std::string name(graph_.name(target));
  out.ignored = make("aten.eq.Scalar", {Arg::value(target), Arg::integer(ignored)}, name + "_ignored", before);
  out.safe = make("aten.masked_fill.Scalar", {Arg::value(target), Arg::value(out.ignored), Arg::integer(0)},
                  name + "_safe", before);
  return out;
}

ValueId ChunkRewriter::label_column(NodeId before, Labels* labels) {
  if (labels->column.is_none())
    labels->column = make("aten.unsqueeze.default", {Arg::value(labels->safe), Arg::integer(1)},
                          std::string(graph_.name(labels->safe)) + "_column", before);
  return labels->column;
}

// The weight of each row's class; 0 where the row does not count.
ValueId ChunkRewriter::row_weights(NodeId before, ValueId weight, const Labels& labels) {
  const bool one_axis = graph_.type(labels.safe).shape.size() == 1;
  const ValueId picked =
      one_axis
          ? make("aten.index_select.default", {Arg::value(weight), Arg::integer(0), Arg::value(labels.safe)},
                 "row_weight", before)
          : make("aten.index.Tensor", {Arg::value(weight), Arg::list({Arg::value(labels.safe)})}, "row_weight", before);
  return make("aten.masked_fill.Scalar", {Arg::value(picked), Arg::value(labels.ignored), Arg::floating(0)},
              "row_weight", before);
}

// The divisor of a mean: the number of rows that count, or the sum of their weights. Depends only on the labels.
ValueId ChunkRewriter::total_weight(NodeId n, ValueId target, int64_t ignored, DType mean, ValueId row_weight) {
  const std::string name(graph_.label(n));
  if (!row_weight.is_none()) return wide_sum("aten.sum.default", {Arg::value(row_weight)}, mean, name + "_weight", n);
  const ValueId counted = make("aten.ne.Scalar", {Arg::value(target), Arg::integer(ignored)}, name + "_counted", n);
  const ValueId count = make("aten.sum.default", {Arg::value(counted)}, name + "_count", n);
  return cast(count, type_of_sum(mean), name + "_weight", n);
}

// The total weight of a loss that does not divide by it.
ValueId ChunkRewriter::no_weight(ValueId total, const std::string& name, NodeId n) {
  const Type& type = graph_.type(total);
  return make("aten.zeros.default",
              {Arg::list({}), keyword("dtype", Arg::dtype(type.dtype)),
               keyword("device", Arg::text(ArgKind::device, type.device))},
              name, n);
}

std::optional<NodeId> ChunkRewriter::loss(NodeId n) {
  const ValueId self = tensor(n, "self"), target = tensor(n, "target"), weight = tensor(n, "weight");
  const auto reduction = integer(n, "reduction"), ignored = integer(n, "ignore_index");
  if (self.is_none() || target.is_none() || changes(target) || !reduction || !ignored || !are_scores(self, target))
    return std::nullopt;
  const NodeId before = graph_.previous(n);
  Labels& labels = labels_of(n, target, *ignored);
  const DType dtype = graph_.type(self).dtype;
  ValueId total, row_weight;
  if (!weight.is_none()) row_weight = row_weights(n, weight, labels);
  const std::string name(graph_.label(n));
  if (*reduction == kNone) {
    total = no_weight(graph_.node(n).result(1), name + "_weight", n);
  } else {
    total = total_weight(n, target, *ignored, dtype, row_weight);
  }
  const ValueId picked =
      make("aten.gather.default", {Arg::value(self), Arg::integer(1), Arg::value(label_column(n, &labels))},
           name + "_picked", n);
  const ValueId flat = make("aten.squeeze.dim", {Arg::value(picked), Arg::integer(1)}, name + "_picked", n);
  ValueId rows = make("aten.neg.default", {Arg::value(flat)}, name + "_rows", n);
  if (!weight.is_none()) rows = make("aten.mul.Tensor", {Arg::value(rows), Arg::value(row_weight)}, name + "_rows", n);
  rows = make("aten.masked_fill.Scalar", {Arg::value(rows), Arg::value(labels.ignored), Arg::floating(0)},
              name + "_rows", n);
  ValueId out = rows;
  if (*reduction == kSum) out = make("aten.sum.default", {Arg::value(rows)}, name + "_sum", n);
  if (*reduction == kMean) {
    const ValueId sum = wide_sum("aten.sum.default", {Arg::value(rows)}, dtype, name + "_sum", n);
    const ValueId quotient = make("aten.div.Tensor", {Arg::value(sum), Arg::value(total)}, name + "_mean", n);
    out = cast(quotient, dtype, name + "_mean", n);
  }
  const ValueId by[] = {out, cast(total, dtype, name + "_weight", n)};
  if (failed_) return std::nullopt;
  return replace_from(before, n, by);
}

// A loss that computes its own log-probabilities stays one op: as a sum, with the divisor computed separately, or as
// one number per row, which needs no divisor.
std::optional<NodeId> ChunkRewriter::folded_loss(NodeId n) {
  const ValueId target = tensor(n, "target"), weight = tensor(n, "weight"), given = graph_.node(n).result(1);
  const auto reduction = integer(n, "reduction"), ignored = integer(n, "ignore_index");
  if (target.is_none() || changes(target) || !reduction || !ignored ||
      (*reduction != kMean && graph_.value(given).use_count == 0))
    return std::nullopt;
  if (*reduction == kNone) {
    const ValueId total = no_weight(given, std::string(graph_.label(n)) + "_weight", n);
    if (failed_) return std::nullopt;
    graph_.replace_uses(given, total);
    return n;
  }
  const NodeId before = graph_.previous(n);
  ValueId row_weight;
  if (!weight.is_none()) row_weight = row_weights(n, weight, labels_of(n, target, *ignored));
  const ValueId total = total_weight(n, target, *ignored, graph_.type(given).dtype, row_weight);
  std::vector<Arg> args = graph_.node(n).args;
  set_reduction(n, &args, kSum);
  const std::string name(graph_.label(n));
  const std::string names[] = {name + "_sum", name + "_part", std::string(graph_.name(graph_.node(n).result(2)))};
  const NodeId sums = make_node("sg.cross_entropy", std::move(args), names, n);
  ValueId out = graph_.node(sums).result(0);
  if (*reduction == kMean) out = make("aten.div.Tensor", {Arg::value(out), Arg::value(total)}, name + "_mean", n);
  if (failed_) return std::nullopt;
  const ValueId by[] = {out, total, graph_.node(sums).result(2)};
  return replace_from(before, n, by);
}

// The log-softmax that this is the gradient of, if it has no other user.
NodeId ChunkRewriter::sole_log_softmax_backward(NodeId n) const {
  const ValueId grad = graph_.node(n).result(0);
  const NodeId user = graph_.only_user(grad);
  if (!user || graph_.op_name(user) != "aten._log_softmax_backward_data.default") return NodeId();
  const auto dim = integer(user, "dim");
  const auto rank = static_cast<int64_t>(graph_.type(grad).shape.size());
  return tensor(user, "grad_output") == grad && (dim == 1 || dim == 1 - rank) ? user : NodeId();
}

// [rows, 1]: c(r), what row r adds to the loss; 0 where it does not count.
ValueId ChunkRewriter::row_scales(NodeId n, int64_t reduction, const Labels& labels) {
  const ValueId weight = tensor(n, "weight"), given = tensor(n, "grad_output");
  const std::string name(graph_.label(n));
  ValueId rows = given;
  if (reduction == kMean)
    rows = make("aten.div.Tensor", {Arg::value(given), Arg::value(tensor(n, "total_weight"))}, name + "_scale", n);
  if (!weight.is_none())
    rows = make("aten.mul.Tensor", {Arg::value(row_weights(n, weight, labels)), Arg::value(rows)}, name + "_rows", n);
  else if (reduction != kNone)
    rows = make("aten.expand.default", {Arg::value(rows), shape_of(tensor(n, "target"))}, name + "_rows", n);
  rows = make("aten.masked_fill.Scalar", {Arg::value(rows), Arg::value(labels.ignored), Arg::floating(0)},
              name + "_rows", n);
  return make("aten.unsqueeze.default", {Arg::value(rows), Arg::integer(1)}, name + "_column", n);
}

// Row r of the gradient is -c(r) at its label and 0 elsewhere. Through log-softmax it becomes exp(output) * c(r), minus
// c(r) at the label.
std::optional<NodeId> ChunkRewriter::loss_backward(NodeId n) {
  const ValueId self = tensor(n, "self"), target = tensor(n, "target");
  const auto reduction = integer(n, "reduction"), ignored = integer(n, "ignore_index");
  if (self.is_none() || target.is_none() || changes(target) || tensor(n, "grad_output").is_none() ||
      tensor(n, "total_weight").is_none() || !reduction || !ignored || !are_scores(self, target))
    return std::nullopt;
  const NodeId before = graph_.previous(n);
  Labels& labels = labels_of(n, target, *ignored);
  const std::string name(graph_.label(n));
  const ValueId column = row_scales(n, *reduction, labels);
  const ValueId negative = make("aten.neg.default", {Arg::value(column)}, name + "_negative", n);
  const ValueId index = label_column(n, &labels);
  if (failed_) return std::nullopt;
  if (const NodeId softmax = sole_log_softmax_backward(n)) {
    if (!through_log_softmax(softmax, column, index, negative)) return std::nullopt;
    graph_.erase(n);
    return from(before);
  }
  const ValueId zeros = make("aten.zeros_like.default", {Arg::value(self)}, name, n);
  const ValueId out = make("aten.scatter_add_.default",
                           {Arg::value(zeros), Arg::integer(1), Arg::value(index), Arg::value(negative)}, name, n);
  if (failed_) return std::nullopt;
  return replace_from(before, n, std::span(&out, 1));
}

// Replaces the gradient of log-softmax by exp(output) * column, to which `negative` is added at the labels.
bool ChunkRewriter::through_log_softmax(NodeId softmax, ValueId column, ValueId index, ValueId negative) {
  const std::string name(graph_.label(softmax));
  const ValueId p = make("aten.exp.default", {Arg::value(tensor(softmax, "output"))}, name + "_exp", softmax);
  const ValueId scaled = make("aten.mul.Tensor", {Arg::value(p), Arg::value(column)}, name + "_scaled", softmax);
  ValueId out = make("aten.scatter_add_.default",
                     {Arg::value(scaled), Arg::integer(1), Arg::value(index), Arg::value(negative)}, name, softmax);
  const DType wanted = graph_.type(graph_.node(softmax).result(0)).dtype;
  if (graph_.type(out).dtype != wanted)
    out = make("aten._to_copy.default", {Arg::value(out), keyword("dtype", Arg::dtype(wanted))}, name, softmax);
  if (failed_) return false;
  graph_.replace_uses(graph_.node(softmax).result(0), out);
  graph_.erase(softmax);
  return true;
}

// --- elementwise losses ---

// A mean becomes a sum divided by the count; its gradient becomes that of the sum.
std::optional<NodeId> ChunkRewriter::pair_loss(NodeId n, bool is_backward) {
  const ValueId self = tensor(n, "self"), target = tensor(n, "target"), given = tensor(n, "grad_output");
  const Arg* said = find(n, "reduction");
  if (self.is_none() || target.is_none() || (said != nullptr && !said->is(ArgKind::integer))) return std::nullopt;
  if ((said == nullptr ? int64_t{kMean} : said->as_int()) != kMean) return std::nullopt;
  if (graph_.type(self).shape != graph_.type(target).shape) return std::nullopt;
  if (graph_.type(self).dtype == DType::f16) return std::nullopt;  // a sum may be too large where the mean is not
  Expr count = pool_.exprs.constant(1);
  for (const Expr e : graph_.type(self).shape) count = pool_.exprs.mul(count, e);
  const NodeId before = graph_.previous(n);
  const std::string name(graph_.label(n)), op(graph_.op_name(n));
  std::vector<Arg> args = graph_.node(n).args;
  set_reduction(n, &args, kSum);
  ValueId out;
  if (is_backward) {
    if (given.is_none()) return std::nullopt;
    const ValueId scaled = make("aten.div.Scalar", {Arg::value(given), size_of(count)}, name + "_scale", n);
    for (Arg& arg : args)
      if (arg.is(ArgKind::value) && arg.as_value() == given) arg = Arg::value(scaled).set_key(arg.key());
    out = make(op, std::move(args), name, n);
  } else {
    const ValueId sum = make(op, std::move(args), name + "_sum", n);
    out = make("aten.div.Scalar", {Arg::value(sum), size_of(count)}, name + "_mean", n);
  }
  if (failed_) return std::nullopt;
  return replace_from(before, n, std::span(&out, 1));
}

void ChunkRewriter::set_reduction(NodeId n, std::vector<Arg>* args, int64_t reduction) {
  const OpInfo& op = *graph_.op_info(n);
  const int wanted = op.param_index("reduction");
  int positional = 0;
  for (Arg& arg : *args) {
    const StrId key = arg.key();
    if ((key.is_none() ? positional++ : op.param_index(pool_.strings[key])) != wanted) continue;
    arg = Arg::integer(reduction).set_key(key);
    return;
  }
  args->push_back(keyword("reduction", Arg::integer(reduction)));
}

// --- x[arange(rows), label] ---

// The labels of rows numbered 0, 1, 2, ... as a column, negative ones counted from 0. Labels out of range stay out of
// range, and the kernel reports them.
ValueId ChunkRewriter::column_of(NodeId n, ValueId self) {
  const Arg* list = find(n, "indices");
  const std::vector<Expr>& shape = graph_.type(self).shape;
  if (list == nullptr || !list->is(ArgKind::list) || list->items().size() != 2 || shape.size() != 2) return {};
  for (const Arg& item : list->items())
    if (!item.is(ArgKind::value)) return {};
  const ValueId rows = list->items()[0].as_value(), label = list->items()[1].as_value();
  const NodeId iota = graph_.value(rows).def;
  const auto classes = pool_.exprs.constant_value(shape[1]);
  const Type& type = graph_.type(label);
  if (!iota || graph_.op_info(iota) == nullptr || !is_iota(*graph_.op_info(iota)) || is_written(rows) || !classes ||
      graph_.type(rows).shape != type.shape || type.shape.size() != 1 || type.shape[0] != shape[0] ||
      type.dtype != DType::i64)
    return {};
  const std::pair key(label.index, *classes);
  if (const auto it = columns_.find(key); it != columns_.end()) return it->second;
  const std::string name(graph_.name(label));
  const ValueId negative = make("aten.lt.Scalar", {Arg::value(label), Arg::integer(0)}, name + "_negative", n);
  const ValueId wrapped = make("aten.add.Scalar", {Arg::value(label), Arg::integer(*classes)}, name + "_wrapped", n);
  const ValueId safe =
      make("aten.where.self", {Arg::value(negative), Arg::value(wrapped), Arg::value(label)}, name + "_safe", n);
  const ValueId column = make("aten.unsqueeze.default", {Arg::value(safe), Arg::integer(1)}, name + "_index", n);
  if (!is_written(label)) columns_.emplace(key, column);
  return column;
}

std::optional<NodeId> ChunkRewriter::picked(NodeId n) {
  const ValueId self = tensor(n, "self");
  const NodeId before = graph_.previous(n);
  const ValueId index = self.is_none() ? ValueId() : column_of(n, self);
  if (index.is_none() || failed_) return std::nullopt;
  const std::string name(graph_.label(n));
  const ValueId column =
      make("aten.gather.default", {Arg::value(self), Arg::integer(1), Arg::value(index)}, name + "_picked", n);
  const ValueId out = make("aten.squeeze.dim", {Arg::value(column), Arg::integer(1)}, name, n);
  if (failed_) return std::nullopt;
  return replace_from(before, n, std::span(&out, 1));
}

std::optional<NodeId> ChunkRewriter::put(NodeId n) {
  const ValueId self = tensor(n, "self"), values = tensor(n, "values");
  const Arg* said = find(n, "accumulate");
  const bool adds = said != nullptr && said->is(ArgKind::boolean) && said->as_bool();
  if (self.is_none() || values.is_none() || (said != nullptr && !said->is(ArgKind::boolean))) return std::nullopt;
  const std::vector<Expr>& given = graph_.type(values).shape;
  if (given.size() > 1 || (given.size() == 1 && given[0] != graph_.type(self).shape[0])) return std::nullopt;
  const NodeId before = graph_.previous(n);
  const ValueId index = column_of(n, self);
  if (index.is_none() || failed_) return std::nullopt;
  const std::string name(graph_.label(n));
  const bool in_place = graph_.op_name(n) == "aten.index_put_.default";
  ValueId rows = values;
  if (given.empty())
    rows = make("aten.expand.default", {Arg::value(values), Arg::list({size_of(graph_.type(self).shape[0])})},
                name + "_rows", n);
  const ValueId column = make("aten.unsqueeze.default", {Arg::value(rows), Arg::integer(1)}, name + "_column", n);
  const std::string_view op = adds ? (in_place ? "aten.scatter_add_.default" : "aten.scatter_add.default")
                                   : (in_place ? "aten.scatter_.src" : "aten.scatter.src");
  const ValueId out = make(op, {Arg::value(self), Arg::integer(1), Arg::value(index), Arg::value(column)}, name, n);
  if (failed_) return std::nullopt;
  return replace_from(before, n, std::span(&out, 1));
}

}  // namespace sg
