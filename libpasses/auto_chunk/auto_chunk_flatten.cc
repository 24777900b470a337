// Moves reshapes between flat rows past the elementwise ops between them.
#include <algorithm>

#include "libgraph/infer/infer_sizes.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"
#include "libpasses/auto_chunk/auto_chunk_rewrite.h"

namespace sg {
namespace {

bool is_reshape(std::string_view op) {
  return op == "aten.view.default" || op == "aten._unsafe_view.default" || op == "aten.reshape.default" ||
         op == "aten.view_copy.default";
}

bool is_copy_of_shape(std::string_view op) { return op == "aten.alias.default" || op == "aten.detach.default"; }

bool is_output(const Graph& graph, ValueId v) {
  return std::ranges::any_of(graph.outputs(), [&](const Output& o) { return o.value == v; });
}

}  // namespace

// `v`, of the shape of `whole` or broadcast to it, reshaped to meet the flat rows; none if that is not possible.
std::optional<ChunkRewriter::Flattened> ChunkRewriter::flattened(ValueId v, const Type& whole, const Type& flat) {
  Sizes sizes(&pool_, &program_);
  const Type type = graph_.type(v);
  if (!sizes.is_contiguous(type)) return std::nullopt;
  std::vector<Expr> shape;
  if (type.shape == whole.shape) {
    shape = flat.shape;
  } else {
    if (whole.shape.size() < flat.shape.size()) return std::nullopt;
    const size_t merged = whole.shape.size() - flat.shape.size() + 1;
    Expr rows = pool_.exprs.constant(1);
    for (size_t i = 0; i < merged; ++i) rows = pool_.exprs.mul(rows, whole.shape[i]);
    if (rows != flat.shape[0] ||
        !std::equal(whole.shape.begin() + static_cast<long>(merged), whole.shape.end(), flat.shape.begin() + 1))
      return std::nullopt;
    if (type.shape.size() <= whole.shape.size() - merged) return Flattened{v, std::nullopt};
    if (type.shape.size() != whole.shape.size()) return std::nullopt;
    const auto ones = [&](size_t n) {
      return std::all_of(type.shape.begin(), type.shape.begin() + static_cast<long>(n),
                         [&](Expr e) { return sizes.is(e, 1); });
    };
    const bool all =
        std::equal(type.shape.begin(), type.shape.begin() + static_cast<long>(merged), whole.shape.begin());
    if (!all && !ones(merged)) return std::nullopt;
    shape.push_back(all ? rows : sizes.number(1));
    shape.insert(shape.end(), type.shape.begin() + static_cast<long>(merged), type.shape.end());
  }
  if (const NodeId def = graph_.value(v).def;
      def && is_reshape(graph_.op_name(def)) && graph_.node(def).args[0].is(ArgKind::value)) {
    const ValueId source = graph_.node(def).args[0].as_value();
    if (graph_.type(source).shape == shape && graph_.type(source).dtype == type.dtype &&
        sizes.is_contiguous(graph_.type(source)))
      return Flattened{source, std::nullopt};
  }
  return Flattened{v, std::move(shape)};
}

ValueId ChunkRewriter::make_flat(const Flattened& to, NodeId before) {
  if (!to.shape) return to.value;
  std::vector<Arg> list;
  for (Expr e : *to.shape) list.push_back(size_of(e));
  return make("aten.view.default", {Arg::value(to.value), Arg::list(std::move(list))}, graph_.name(to.value), before);
}

bool ChunkRewriter::can_push_down(NodeId n) {
  if (!is_reshape(graph_.op_name(n)) || !graph_.node(n).args[0].is(ArgKind::value)) return false;
  Sizes sizes(&pool_, &program_);
  const ValueId whole = graph_.node(n).result(0);
  const Type flat_type = graph_.type(graph_.node(n).args[0].as_value()), whole_type = graph_.type(whole);
  // Never from whole to flat, or a reshape pushed down would be pushed back.
  if (flat_type.shape.size() >= whole_type.shape.size()) return false;
  if (!sizes.is_contiguous(flat_type) || !sizes.is_contiguous(whole_type)) return false;
  if (is_output(graph_, whole)) return false;
  return std::ranges::all_of(graph_.users(whole), [&](NodeId u) { return can_move_past(u, whole_type, flat_type); });
}

// Whether the reshape can stand after `user`, or is not needed by it.
bool ChunkRewriter::can_move_past(NodeId user, const Type& whole, const Type& flat) {
  const OpInfo* op = graph_.op_info(user);
  if (op == nullptr || graph_.node(user).result_count != 1) return false;
  const ValueId result = graph_.node(user).result(0);
  if (op->name == "aten.sym_size.int" && graph_.type(result).value && !is_output(graph_, result)) return true;
  if (is_reshape(op->name) || is_copy_of_shape(op->name)) return true;
  if (!op->has(kPointwise) || !op->has(kPure) || draws_random(graph_, user)) return false;
  const Type& made = graph_.type(result);
  if (made.shape != whole.shape || !Sizes(&pool_, &program_).is_contiguous(made)) return false;
  bool can = true;
  for_operands(graph_, user, [&](ValueId v) {
    if (graph_.type(v).kind == TypeKind::tensor) can = can && flattened(v, whole, flat);
  });
  return can;
}

// REQUIRES: can_move_past
void ChunkRewriter::move_past(NodeId user, ValueId whole, ValueId flat) {
  const ValueId result = graph_.node(user).result(0);
  const Type whole_type = graph_.type(whole), flat_type = graph_.type(flat);
  if (graph_.op_name(user) == "aten.sym_size.int") {
    put_number(&graph_, result);
    graph_.erase(user);
    return;
  }
  if (is_reshape(graph_.op_name(user))) {
    graph_.replace_uses_in(user, whole, flat);
    if (graph_.type(result) == flat_type) graph_.replace_uses(result, flat), graph_.erase(user);
    return;
  }
  std::vector<Arg> args = graph_.node(user).args;
  for (Arg& arg : args)
    arg.walk_mutable([&](Arg& a) {
      if (!a.is(ArgKind::value) || graph_.type(a.as_value()).kind != TypeKind::tensor) return;
      a.set_value(a.as_value() == whole ? flat : make_flat(*flattened(a.as_value(), whole_type, flat_type), user));
    });
  const ValueId made = make(graph_.op_name(user), std::move(args), std::string(graph_.name(result)) + "_rows", user);
  std::vector<Arg> list;
  for (Expr e : whole_type.shape) list.push_back(size_of(e));
  const ValueId back =
      make("aten.view.default", {Arg::value(made), Arg::list(std::move(list))}, graph_.name(result), user);
  graph_.replace_uses(result, back);
  graph_.erase(user);
}

bool ChunkRewriter::push_down(NodeId n) {
  if (!can_push_down(n)) return false;
  const ValueId flat = graph_.node(n).args[0].as_value(), whole = graph_.node(n).result(0);
  for (NodeId user : graph_.users(whole)) move_past(user, whole, flat);
  graph_.erase(n);
  return true;
}

}  // namespace sg
