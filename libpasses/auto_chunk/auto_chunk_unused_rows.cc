// Leaves out rows of a product that nobody looks at: logits[:, :-1], the shift of language models.
//
//   view(x @ w, [b, l, v])[:, start:end]   ->   view(x[:, start:end] @ w, [b, end - start, v])
//
// Its backward fills those rows with zeros, which add nothing to a gradient: they are left out there as well, and come
// back as zeros in the gradient of x alone. Nothing is done where any of it is written in place.
#include <algorithm>
#include <cmath>

#include "libgraph/infer/infer_sizes.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"
#include "libpasses/auto_chunk/auto_chunk_rewrite.h"

namespace sg {
namespace {

bool is_reshape_of(const Graph& graph, NodeId n) {
  const std::string_view op = graph.op_name(n);
  return op == "aten.view.default" || op == "aten._unsafe_view.default" || op == "aten.reshape.default";
}

// Casts and the like: each row by itself, nothing but it is taken, and rows of zeros stay zeros.
bool passes_rows_on(const Graph& graph, NodeId n) {
  const std::string_view op = graph.op_name(n);
  const bool scales =
      op == "aten.mul.Tensor" || op == "aten.div.Tensor" || op == "aten.mul.Scalar" || op == "aten.div.Scalar";
  if (!scales)
    return op == "aten._to_copy.default" || op == "aten.alias.default" || op == "aten.detach.default" ||
           op == "aten.clone.default" || op == "aten.neg.default";
  const std::vector<Arg>& args = graph.node(n).args;
  const bool by_number =
      args.size() == 2 && args[0].is(ArgKind::value) && (args[1].is(ArgKind::integer) || args[1].is(ArgKind::floating));
  return by_number && (args[1].is(ArgKind::integer) ? args[1].as_int() != 0 : std::isnormal(args[1].as_float()));
}

NodeId sole_user_of(const Graph& graph, ValueId v) {
  const NodeId user = graph.only_user(v);
  return user && graph.node(user).result_count == 1 ? user : NodeId();
}

}  // namespace

// Nodes that only a size of `v` concerns, which is known without it.
void ChunkRewriter::forget_sizes(ValueId v) {
  for (NodeId user : graph_.users(v)) {
    if (graph_.op_name(user) != "aten.sym_size.int" && graph_.op_name(user) != "aten.sym_numel.default") continue;
    const ValueId size = graph_.node(user).result(0);
    if (!graph_.type(size).value ||
        std::ranges::any_of(graph_.outputs(), [&](const Output& o) { return o.value == size; }))
      continue;
    put_number(&graph_, size);
    graph_.erase(user);
  }
}

// Several slices of the same rows are one.
void ChunkRewriter::merge_slices(ValueId v) {
  const std::vector<NodeId> users = graph_.users(v);
  const auto is_like_first = [&](NodeId n) {
    return graph_.op_name(n) == "aten.slice.Tensor" && graph_.node(n).args == graph_.node(users[0]).args &&
           !is_written(graph_.node(n).result(0));
  };
  if (users.size() < 2 || !std::ranges::all_of(users, is_like_first)) return;
  for (size_t i = 1; i < users.size(); ++i) {
    graph_.replace_uses(graph_.node(users[i]).result(0), graph_.node(users[0]).result(0));
    graph_.erase(users[i]);
  }
}

// The sum of two such gradients is filled with zeros once.
void ChunkRewriter::merge_fills() {
  for (NodeId n : graph_.nodes()) {
    if (graph_.op_name(n) != "aten.add.Tensor" || graph_.node(n).args.size() != 2) continue;
    NodeId fills[2];
    for (size_t i = 0; i < 2; ++i) {
      const Arg& arg = graph_.node(n).args[i];
      const NodeId def = arg.is(ArgKind::value) ? graph_.value(arg.as_value()).def : NodeId();
      if (def && graph_.op_name(def) == "aten.slice_backward.default" && graph_.only_user(arg.as_value()) == n)
        fills[i] = def;
    }
    if (!fills[0] || !fills[1]) continue;
    std::vector<Arg> first = graph_.node(fills[0]).args, second = graph_.node(fills[1]).args;
    if (first.size() != second.size() || !std::equal(first.begin() + 1, first.end(), second.begin() + 1)) continue;
    if (!first[0].is(ArgKind::value) || !second[0].is(ArgKind::value)) continue;
    if (is_written(first[0].as_value()) || is_written(second[0].as_value())) continue;
    if (graph_.type(first[0].as_value()) != graph_.type(second[0].as_value())) continue;
    const std::string name(graph_.name(graph_.node(n).result(0)));
    const ValueId sum = make("aten.add.Tensor", {first[0], second[0]}, name + "_used", n);
    first[0] = Arg::value(sum);
    const ValueId filled = make("aten.slice_backward.default", std::move(first), name, n);
    graph_.replace_uses(graph_.node(n).result(0), filled);
    graph_.erase(n), graph_.erase(fills[0]), graph_.erase(fills[1]);
  }
}

// The slice of axis 1 of a reshaped product, and what stands between; none if something else takes one of them.
std::optional<ChunkRewriter::RowsTaken> ChunkRewriter::rows_taken(NodeId product) {
  const std::string_view op = graph_.op_name(product);
  if (op != "aten.mm.default" && op != "aten.addmm.default") return std::nullopt;
  RowsTaken out;
  out.operand = op == "aten.mm.default" ? 0 : 1;
  if (!graph_.node(product).args[out.operand].is(ArgKind::value)) return std::nullopt;
  if (out.operand == 1 && graph_.type(tensor(product, "self")).shape.size() != 1) return std::nullopt;
  ValueId at = graph_.node(product).result(0);
  if (is_written(at) || is_written(graph_.node(product).args[out.operand].as_value())) return std::nullopt;
  forget_sizes(at);
  const NodeId view = sole_user_of(graph_, at);
  if (!view || !is_reshape_of(graph_, view)) return std::nullopt;
  at = graph_.node(view).result(0);
  out.shape = graph_.type(at).shape;
  if (out.shape.size() != 3) return std::nullopt;
  out.between.push_back(view);
  for (;;) {
    forget_sizes(at);
    merge_slices(at);
    const NodeId user = sole_user_of(graph_, at);
    if (!user) return std::nullopt;
    const Type& made = graph_.type(graph_.node(user).result(0));
    const bool is_slice = graph_.op_name(user) == "aten.slice.Tensor";
    if (is_slice && made.shape != out.shape) {
      out.slice = user;
      break;
    }
    if (!is_slice && !passes_rows_on(graph_, user)) return std::nullopt;
    out.between.push_back(user);
    at = graph_.node(user).result(0);
  }
  const auto dim = integer(out.slice, "dim");
  const auto start = find(out.slice, "start") ? integer(out.slice, "start") : std::optional<int64_t>(0);
  if (!dim || (*dim != 1 && *dim != -2) || !start || *start < 0) return std::nullopt;
  if (find(out.slice, "step") && integer(out.slice, "step") != 1) return std::nullopt;
  out.start = *start;
  out.length = graph_.type(graph_.node(out.slice).result(0)).shape[1];
  return out;
}

// The gradient of a slice that took all.
bool ChunkRewriter::fills_nothing(NodeId n) const {
  return graph_.op_name(n) == "aten.slice_backward.default" &&
         graph_.type(tensor(n, "grad_output")).shape == graph_.type(graph_.node(n).result(0)).shape;
}

// The gradients of such a slice, each up to the flat rows; none if one is used otherwise than in products and sums.
std::optional<std::vector<ChunkRewriter::RowsGiven>> ChunkRewriter::rows_given(NodeId product, const RowsTaken& taken) {
  const ValueId x = graph_.node(product).args[taken.operand].as_value();
  const Type& flat = graph_.type(graph_.node(product).result(0));
  std::vector<RowsGiven> out;
  for (NodeId n : graph_.nodes()) {
    if (graph_.op_name(n) != "aten.slice_backward.default") continue;
    const ValueId gradient = tensor(n, "grad_output");
    const auto dim = integer(n, "dim");
    if (graph_.type(graph_.node(n).result(0)).shape != taken.shape || !dim || (*dim != 1 && *dim != -2)) continue;
    if (integer(n, "start") != taken.start || graph_.type(gradient).shape[1] != taken.length) continue;
    if (is_written(gradient)) return std::nullopt;
    RowsGiven given{n, {}, {}};
    ValueId at = graph_.node(n).result(0);
    for (;;) {
      forget_sizes(at);
      const NodeId user = sole_user_of(graph_, at);
      if (!user) return std::nullopt;
      if (!passes_rows_on(graph_, user) && !is_reshape_of(graph_, user) && !fills_nothing(user)) return std::nullopt;
      given.between.push_back(user);
      at = graph_.node(user).result(0);
      if (is_reshape_of(graph_, user)) break;
    }
    if (graph_.type(at).shape != flat.shape) return std::nullopt;
    forget_sizes(at);
    if (std::ranges::any_of(graph_.outputs(), [&](const Output& o) { return o.value == at; })) return std::nullopt;
    for (NodeId user : graph_.users(at)) {
      const std::string_view op = graph_.op_name(user);
      const auto is_first = [&](NodeId of, ValueId v) {
        return graph_.node(of).args[0].is(ArgKind::value) && graph_.node(of).args[0].as_value() == v;
      };
      if (op == "aten.t.default") {
        const ValueId turned = graph_.node(user).result(0);
        const NodeId mm = sole_user_of(graph_, turned);
        if (!mm || graph_.op_name(mm) != "aten.mm.default" || !is_first(mm, turned) || tensor(mm, "mat2") != x)
          return std::nullopt;
        given.users.push_back(user), given.users.push_back(mm);
      } else if (op == "aten.mm.default" && is_first(user, at) && tensor(user, "mat2") != at) {
        given.users.push_back(user);
      } else if (op == "aten.sum.dim_IntList") {
        const Arg* dims = find(user, "dim");
        if (dims == nullptr || !dims->is(ArgKind::list) || dims->items().size() != 1 ||
            !dims->items()[0].is(ArgKind::integer) || dims->items()[0].as_int() != 0)
          return std::nullopt;
        given.users.push_back(user);
      } else {
        return std::nullopt;
      }
    }
    out.push_back(std::move(given));
  }
  return out;
}

bool ChunkRewriter::retype(NodeId n) {
  auto types = types_.infer(graph_, n);
  failed_ = failed_ || !types.ok();
  if (!types.ok()) return false;
  bool changed = false;
  for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) {
    const TypeId type = pool_.types.intern((*types)[i]);
    changed = changed || type != graph_.value(graph_.node(n).result(i)).type;
    graph_.set_type(graph_.node(n).result(i), type);
  }
  return changed;
}

// Types of what follows: other strides, as rows are dense now.
bool ChunkRewriter::retype_behind(NodeId first) {
  std::vector<bool> changed(graph_.value_id_limit(), false);
  for (uint32_t i = 0; i < graph_.node(first).result_count; ++i) changed[graph_.node(first).result(i).index] = true;
  for (NodeId n = graph_.next(first); n; n = graph_.next(n)) {
    bool any = false;
    for_operands(graph_, n, [&](ValueId v) { any = any || changed[v.index]; });
    if (!any || !retype(n)) continue;
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) changed[graph_.node(n).result(i).index] = true;
  }
  return !failed_ && std::ranges::none_of(graph_.outputs(), [&](const Output& o) {
    return !o.value.is_none() && changed[o.value.index];
  });
}

Arg ChunkRewriter::list_of(std::span<const Expr> sizes) const {
  std::vector<Arg> list;
  for (Expr e : sizes) list.push_back(size_of(e));
  return Arg::list(std::move(list));
}

ValueId ChunkRewriter::dense(ValueId v, NodeId before) {
  if (Sizes(&pool_, &program_).is_contiguous(graph_.type(v))) return v;
  const Arg format = keyword("memory_format", Arg::text(ArgKind::memory_format, pool_.str("contiguous_format")));
  return make("aten.clone.default", {Arg::value(v), format}, std::string(graph_.name(v)) + "_dense", before);
}

bool ChunkRewriter::leave_out_rows(NodeId product) {
  const auto taken = rows_taken(product);
  if (!taken) return false;
  merge_fills();
  const auto given = rows_given(product, *taken);
  if (!given) return false;
  ExprPool& exprs = pool_.exprs;
  const Expr batch = taken->shape[0], all = taken->shape[1], some = taken->length;
  const Expr end = exprs.add(exprs.constant(taken->start), some);
  const ValueId x = graph_.node(product).args[taken->operand].as_value();
  const Expr width = graph_.type(x).shape[1];
  const std::string name(graph_.name(x));

  const Expr whole_shape[] = {batch, all, width}, flat_shape[] = {exprs.mul(batch, some), width};
  const ValueId whole = make("aten.view.default", {Arg::value(x), list_of(whole_shape)}, name + "_all", product);
  const ValueId part =
      make("aten.slice.Tensor", {Arg::value(whole), Arg::integer(1), Arg::integer(taken->start), size_of(end)},
           name + "_used", product);
  const ValueId rows =
      make("aten.view.default", {Arg::value(dense(part, product)), list_of(flat_shape)}, name + "_rows", product);
  if (failed_) return false;

  std::vector<Arg> args = graph_.node(product).args;
  args[taken->operand].set_value(rows);
  graph_.set_args(product, std::move(args));
  retype(product);
  const Expr made_shape[] = {batch, some, taken->shape[2]};
  const NodeId view = taken->between[0];
  graph_.set_args(view, {Arg::value(graph_.node(product).result(0)), list_of(made_shape)});
  for (NodeId n : taken->between) retype(n);
  const NodeId last = taken->between.back();
  graph_.replace_uses(graph_.node(taken->slice).result(0), graph_.node(last).result(0));
  graph_.erase(taken->slice);
  if (failed_ || !retype_behind(last)) return false;
  for (const RowsGiven& g : *given)
    if (!give_rows(g, x, rows, {whole_shape, whole_shape + 3}, taken->start, some)) return false;
  return true;
}

// REQUIRES: one of rows_given
bool ChunkRewriter::give_rows(const RowsGiven& given, ValueId x, ValueId rows, const std::vector<Expr>& whole_shape,
                              int64_t start, Expr some) {
  ExprPool& exprs = pool_.exprs;
  const Expr batch = whole_shape[0], width = whole_shape[2], count = exprs.mul(batch, some);
  const ValueId gradient = tensor(given.fill, "grad_output");
  graph_.replace_uses(graph_.node(given.fill).result(0), gradient);
  graph_.erase(given.fill);
  for (NodeId n : given.between) {
    if (graph_.op_name(n) == "aten.slice_backward.default") {
      graph_.replace_uses(graph_.node(n).result(0), tensor(n, "grad_output"));
      graph_.erase(n);
      continue;
    }
    if (is_reshape_of(graph_, n)) {
      const ValueId at = dense(graph_.node(n).args[0].as_value(), n);
      const Expr shape[] = {count, graph_.type(at).shape[2]};
      graph_.set_args(n, {Arg::value(at), list_of(shape)});
    }
    retype(n);
  }
  for (NodeId n : given.users) {
    std::vector<Arg> args = graph_.node(n).args;
    for (Arg& arg : args)
      if (arg.is(ArgKind::value) && arg.as_value() == x) arg.set_value(rows);
    graph_.set_args(n, std::move(args));
    retype(n);
    const ValueId made = graph_.node(n).result(0);
    if (graph_.op_name(n) != "aten.mm.default" || graph_.type(made).shape[0] != count ||
        graph_.type(made).shape[1] != width)
      continue;
    if (tensor(n, "mat2") == rows) continue;  // the weight's
    const std::string name(graph_.name(made));
    const Expr some_shape[] = {batch, some, width}, flat_shape[] = {exprs.mul(batch, whole_shape[1]), width};
    const std::vector<NodeId> users = graph_.users(made);
    const NodeId behind = graph_.next(n);
    const ValueId some_rows =
        make("aten.view.default", {Arg::value(made), list_of(some_shape)}, name + "_used", behind);
    const ValueId filled = make("aten.slice_backward.default",
                                {Arg::value(some_rows), list_of(whole_shape), Arg::integer(1), Arg::integer(start),
                                 size_of(exprs.add(exprs.constant(start), some)), Arg::integer(1)},
                                name + "_all", behind);
    const ValueId flat = make("aten.view.default", {Arg::value(filled), list_of(flat_shape)}, name + "_rows", behind);
    for (NodeId user : users) graph_.replace_uses_in(user, made, flat);
    for (size_t i = 0; i < graph_.outputs().size(); ++i)
      if (graph_.outputs()[i].value == made) graph_.set_output_value(i, flat);
  }
  return !failed_;
}

}  // namespace sg
