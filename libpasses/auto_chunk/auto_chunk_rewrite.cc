#include "libpasses/auto_chunk/auto_chunk_rewrite.h"

#include <algorithm>
#include <unordered_map>

#include "libgraph/facts/alias.h"
#include "libgraph/infer/infer_sizes.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"
#include "libpasses/axis/axis_rules.h"

namespace sg {

ChunkRewriter::ChunkRewriter(Program* program)
    : program_(*program), graph_(program->graph), pool_(graph_.pool()), types_(*program) {
  const AliasAnalysis alias(program_, graph_);
  std::unordered_map<uint32_t, uint32_t> last_write;  // by class: a position
  std::vector<uint32_t> first_use(graph_.value_id_limit(), UINT32_MAX);
  uint32_t at = 0;
  for (NodeId n : graph_.nodes()) {
    for (StorageId s : alias.writes(n)) last_write[alias.storage(s).alias_class] = at;
    for_operands(graph_, n, [&](ValueId v) { first_use[v.index] = std::min(first_use[v.index], at); });
    ++at;
  }
  written_.resize(graph_.value_id_limit()), changes_.resize(graph_.value_id_limit());
  for (uint32_t v = 0; v < written_.size(); ++v) {
    const StorageId s = alias.storage_of(ValueId(v));
    const auto found = s.is_none() ? last_write.end() : last_write.find(alias.storage(s).alias_class);
    if (found == last_write.end()) continue;
    written_[v] = true;
    changes_[v] = found->second >= first_use[v];
  }
}

void put_number(Graph* graph, ValueId v) {
  const Expr e = graph->type(v).value;
  const auto number = graph->pool().exprs.constant_value(e);
  for (NodeId user : graph->users(v)) {
    std::vector<Arg> args = graph->node(user).args;
    for (Arg& arg : args)
      arg.walk_mutable([&](Arg& a) {
        if (!a.is(ArgKind::value) || a.as_value() != v) return;
        const StrId key = a.key();
        a = (number ? Arg::integer(*number) : Arg::expr(e)).set_key(key);
      });
    graph->set_args(user, std::move(args));
  }
}

// --- arguments ---

const Arg* ChunkRewriter::find(NodeId n, std::string_view name) const {
  const OpInfo& op = *graph_.op_info(n);
  int positional = 0;
  const int wanted = op.param_index(name);
  for (const Arg& arg : graph_.node(n).args) {
    const int at = arg.key().is_none() ? positional++ : op.param_index(pool_.strings[arg.key()]);
    if (at == wanted && at >= 0) return arg.is(ArgKind::none) ? nullptr : &arg;
  }
  return nullptr;
}

ValueId ChunkRewriter::tensor(NodeId n, std::string_view name) const {
  const Arg* arg = find(n, name);
  return arg != nullptr && arg->is(ArgKind::value) ? arg->as_value() : ValueId();
}

std::optional<int64_t> ChunkRewriter::integer(NodeId n, std::string_view name) const {
  const Arg* arg = find(n, name);
  return arg != nullptr && arg->is(ArgKind::integer) ? std::optional(arg->as_int()) : std::nullopt;
}

Arg ChunkRewriter::size_of(Expr e) const {
  const auto number = pool_.exprs.constant_value(e);
  return number ? Arg::integer(*number) : Arg::expr(e);
}

NodeId ChunkRewriter::make_node(std::string_view op, std::vector<Arg> args, std::span<const std::string> names,
                                NodeId position) {
  NodeSpec spec;
  spec.op = pool_.op(op);
  spec.args = std::move(args);
  spec.result_types.assign(names.size(), Pool::kUnknownType);
  spec.names.assign(names.begin(), names.end());
  spec.is_tuple = names.size() > 1;
  const Node& like = graph_.node(position ? position : graph_.last());
  spec.phase = like.phase;
  spec.module = like.module;
  spec.source = like.source;
  spec.forward = like.forward;
  const NodeId n = graph_.insert_before(position, spec);
  auto types = types_.infer(graph_, n);
  failed_ = failed_ || !types.ok();
  for (uint32_t i = 0; types.ok() && i < names.size(); ++i)
    graph_.set_type(graph_.node(n).result(i), pool_.types.intern((*types)[i]));
  return n;
}

ValueId ChunkRewriter::make(std::string_view op, std::vector<Arg> args, std::string_view name, NodeId position) {
  const std::string names[] = {std::string(name)};
  return graph_.node(make_node(op, std::move(args), names, position)).result(0);
}

NodeId ChunkRewriter::replace(NodeId n, NodeId first_new, std::span<const ValueId> by) {
  for (uint32_t i = 0; i < by.size(); ++i) graph_.replace_uses(graph_.node(n).result(i), by[i]);
  const NodeId next = first_new ? first_new : graph_.next(n);
  graph_.erase(n);
  return next;
}

NodeId ChunkRewriter::replace_from(NodeId before, NodeId n, std::span<const ValueId> by) {
  return replace(n, from(before), by);
}

std::optional<NodeId> ChunkRewriter::rewrite(NodeId n) {
  const OpInfo* op = graph_.op_info(n);
  if (op == nullptr) return std::nullopt;
  if (op->name == "aten.sym_size.int" || op->name == "aten.sym_numel.default") return size(n);
  if (op->name == "aten.nll_loss_forward.default" || op->name == "aten.nll_loss2d_forward.default") return loss(n);
  if (op->name == "sg.cross_entropy") return folded_loss(n);
  if (op->name == "aten.nll_loss_backward.default" || op->name == "aten.nll_loss2d_backward.default")
    return loss_backward(n);
  const AxisRow* row = find_axis_rule(*op);
  if (row != nullptr && (row->rule == axis::elementwise_loss || row->rule == axis::elementwise_loss_backward))
    return pair_loss(n, row->rule == axis::elementwise_loss_backward);
  if (op->name == "aten.index.Tensor") return picked(n);
  if (op->name == "aten.mean.default" || op->name == "aten.mean.dim") return mean(n);
  if (op->name == "aten.ones_like.default" || op->name == "aten.zeros_like.default" ||
      op->name == "aten.full_like.default")
    return like(n);
  if (op->name.starts_with("aten.new_")) return fill(n);
  if ((op->has(kPointwise) || op->name == "aten.expand.default") && take_counts(n)) return n;
  return rewrite_write(n);
}

// A row count that a mean divides by is the total count in each chunk; values expanded to that many rows can be
// computed before the chunks.
bool ChunkRewriter::take_counts(NodeId n) {
  std::vector<Arg> args = graph_.node(n).args;
  bool taken = false;
  for (Arg& arg : args)
    arg.walk_mutable([&](Arg& a) {
      if (!a.is(ArgKind::value)) return;
      const NodeId def = graph_.value(a.as_value()).def;
      const Expr number = graph_.type(a.as_value()).value;
      if (!def || !number) return;
      if (graph_.op_name(def) != "aten.sym_numel.default" && graph_.op_name(def) != "aten.sym_size.int") return;
      const StrId key = a.key();
      a = size_of(number).set_key(key);
      taken = true;
    });
  if (taken) graph_.set_args(n, std::move(args));
  return taken;
}

std::optional<NodeId> ChunkRewriter::rewrite_write(NodeId n) {
  const OpInfo* op = graph_.op_info(n);
  const bool writes = op != nullptr && (op->name == "aten.index_put.default" || op->name == "aten.index_put_.default");
  return writes ? put(n) : std::nullopt;
}

// A size is known without the tensor; what computes with it does not wait for the chunks then.
std::optional<NodeId> ChunkRewriter::size(NodeId n) {
  const ValueId result = graph_.node(n).result(0);
  if (!graph_.type(result).value) return std::nullopt;
  put_number(&graph_, result);
  if (graph_.has_used_result(n)) return std::nullopt;
  const NodeId next = graph_.next(n);
  graph_.erase(n);
  return next;
}

DType ChunkRewriter::type_of_sum(DType mean) { return mean == DType::f16 || mean == DType::bf16 ? DType::f32 : mean; }

ValueId ChunkRewriter::wide_sum(std::string_view op, std::vector<Arg> args, DType mean, std::string_view name,
                                NodeId position) {
  if (const DType wide = type_of_sum(mean); wide != mean) {
    const StrId key = pool_.str("dtype");
    std::erase_if(args, [&](const Arg& a) { return a.key() == key; });
    args.push_back(keyword("dtype", Arg::dtype(wide)));
  }
  return make(op, std::move(args), name, position);
}

ValueId ChunkRewriter::cast(ValueId v, DType to, std::string_view name, NodeId position) {
  if (failed_ || graph_.type(v).dtype == to) return v;
  return make("aten._to_copy.default", {Arg::value(v), keyword("dtype", Arg::dtype(to))}, name, position);
}

// mean(x) = sum(x) / count
std::optional<NodeId> ChunkRewriter::mean(NodeId n) {
  const ValueId self = tensor(n, "self");
  const std::vector<Expr>& shape = graph_.type(self).shape;
  const Arg* dims = find(n, "dim");
  if (dims == nullptr && graph_.op_name(n) == "aten.mean.dim") return std::nullopt;
  Expr count = pool_.exprs.constant(1);
  std::vector<bool> gone(shape.size(), dims == nullptr);
  if (dims != nullptr) {
    if (!dims->is(ArgKind::list)) return std::nullopt;
    for (const Arg& d : dims->items()) {
      if (!d.is(ArgKind::integer)) return std::nullopt;
      const int64_t at = d.as_int() < 0 ? d.as_int() + static_cast<int64_t>(shape.size()) : d.as_int();
      if (at < 0 || at >= static_cast<int64_t>(shape.size())) return std::nullopt;
      gone[static_cast<size_t>(at)] = true;
    }
    if (dims->items().empty()) gone.assign(shape.size(), true);
  }
  for (size_t i = 0; i < shape.size(); ++i)
    if (gone[i]) count = pool_.exprs.mul(count, shape[i]);
  const NodeId before = graph_.previous(n);
  std::vector<Arg> args = graph_.node(n).args;
  const std::string name(graph_.label(n));
  const DType dtype = graph_.type(graph_.node(n).result(0)).dtype;
  const ValueId sum =
      wide_sum(dims == nullptr ? "aten.sum.default" : "aten.sum.dim_IntList", std::move(args), dtype, name + "_sum", n);
  const auto number = pool_.exprs.constant_value(count);
  const ValueId quotient =
      make("aten.div.Scalar", {Arg::value(sum), number ? Arg::integer(*number) : Arg::expr(count)}, name + "_mean", n);
  const ValueId out = cast(quotient, dtype, name + "_mean", n);
  if (failed_) return std::nullopt;
  return replace_from(before, n, std::span(&out, 1));
}

// The fill of a one-element *_like: it needs only the type of its operand, not its data.
std::optional<NodeId> ChunkRewriter::like(NodeId n) {
  const Type type = graph_.type(graph_.node(n).result(0));
  if (!type.shape.empty()) return std::nullopt;
  Arg value = Arg::integer(graph_.op_name(n) == "aten.ones_like.default" ? 1 : 0);
  if (const Arg* given = find(n, "fill_value"); graph_.op_info(n)->param_index("fill_value") >= 0) {
    if (given == nullptr || given->is(ArgKind::value)) return std::nullopt;
    value = *given;
    value.set_key(StrId());
  }
  const ValueId out = make("aten.full.default",
                           {Arg::list({}), value, keyword("dtype", Arg::dtype(type.dtype)),
                            keyword("device", Arg::text(ArgKind::device, type.device))},
                           graph_.name(graph_.node(n).result(0)), n);
  if (failed_) return std::nullopt;
  return replace(n, graph_.value(out).def, std::span(&out, 1));
}

// Only the type of the tensor is used, which is known before the tensor exists. A size that is a chunk's own still
// makes the fill one of its chunk.
std::optional<NodeId> ChunkRewriter::fill(NodeId n) {
  const std::string_view op = graph_.op_name(n);
  const Arg* size = find(n, "size");
  const Arg* given = op == "aten.new_full.default" ? find(n, "fill_value") : nullptr;
  if ((op != "aten.new_zeros.default" && op != "aten.new_ones.default" && given == nullptr) || size == nullptr ||
      !size->is(ArgKind::list))
    return std::nullopt;
  if (given != nullptr && given->is(ArgKind::value)) return std::nullopt;
  const Type type = graph_.type(graph_.node(n).result(0));
  Arg list = *size, value = given != nullptr ? *given : Arg::integer(op == "aten.new_ones.default");
  list.set_key(StrId()), value.set_key(StrId());
  const ValueId out = make("aten.full.default",
                           {list, value, keyword("dtype", Arg::dtype(type.dtype)),
                            keyword("device", Arg::text(ArgKind::device, type.device))},
                           graph_.name(graph_.node(n).result(0)), n);
  if (failed_) return std::nullopt;
  return replace(n, graph_.value(out).def, std::span(&out, 1));
}

}  // namespace sg
