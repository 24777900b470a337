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
ValueId ChunkRewriter::flattened(ValueId v, const Type& whole, const Type& flat, NodeId before) {
  Sizes sizes(&pool_, &program_);
  const Type type = graph_.type(v);
  if (!sizes.is_contiguous(type)) return ValueId();
  std::vector<Expr> shape;
  if (type.shape == whole.shape) {
    shape = flat.shape;
  } else {
    if (whole.shape.size() < flat.shape.size()) return ValueId();
    const size_t merged = whole.shape.size() - flat.shape.size() + 1;
    Expr rows = pool_.exprs.constant(1);
    for (size_t i = 0; i < merged; ++i) rows = pool_.exprs.mul(rows, whole.shape[i]);
    if (rows != flat.shape[0] ||
        !std::equal(whole.shape.begin() + static_cast<long>(merged), whole.shape.end(), flat.shape.begin() + 1))
      return ValueId();
    if (type.shape.size() <= whole.shape.size() - merged) return v;
    if (type.shape.size() != whole.shape.size()) return ValueId();
    const auto ones = [&](size_t n) {
      return std::all_of(type.shape.begin(), type.shape.begin() + static_cast<long>(n),
                         [&](Expr e) { return sizes.is(e, 1); });
    };
    const bool all =
        std::equal(type.shape.begin(), type.shape.begin() + static_cast<long>(merged), whole.shape.begin());
    if (!all && !ones(merged)) return ValueId();
    shape.push_back(all ? rows : sizes.number(1));
    shape.insert(shape.end(), type.shape.begin() + static_cast<long>(merged), type.shape.end());
  }
  if (const NodeId def = graph_.value(v).def;
      def && is_reshape(graph_.op_name(def)) && graph_.node(def).args[0].is(ArgKind::value)) {
    const ValueId source = graph_.node(def).args[0].as_value();
    if (graph_.type(source).shape == shape && graph_.type(source).dtype == type.dtype &&
        sizes.is_contiguous(graph_.type(source)))
      return source;
  }
  if (before.is_none()) return v;  // the caller only asks whether it is possible
  std::vector<Arg> list;
  for (Expr e : shape) list.push_back(size_of(e));
  return make("aten.view.default", {Arg::value(v), Arg::list(std::move(list))}, graph_.name(v), before, before);
}

bool ChunkRewriter::push_down(NodeId n) {
  if (!is_reshape(graph_.op_name(n)) || !graph_.node(n).args[0].is(ArgKind::value)) return false;
  Sizes sizes(&pool_, &program_);
  const ValueId flat = graph_.node(n).args[0].as_value(), whole = graph_.node(n).result(0);
  const Type flat_type = graph_.type(flat), whole_type = graph_.type(whole);
  // Never from whole to flat, or a reshape pushed down would be pushed back.
  if (flat_type.shape.size() >= whole_type.shape.size()) return false;
  if (!sizes.is_contiguous(flat_type) || !sizes.is_contiguous(whole_type)) return false;
  const std::vector<NodeId> users = graph_.users(whole);
  if (is_output(graph_, whole)) return false;
  for (NodeId u : users) {
    const OpInfo* op = graph_.op_info(u);
    if (op == nullptr || graph_.node(u).result_count != 1) return false;
    if (op->name == "aten.sym_size.int" && graph_.type(graph_.node(u).result(0)).value &&
        !is_output(graph_, graph_.node(u).result(0)))
      continue;
    if (is_reshape(op->name) || is_copy_of_shape(op->name)) continue;
    const Type& made = graph_.type(graph_.node(u).result(0));
    if (!op->has(kPointwise) || !op->has(kPure) || draws_random(graph_, u) || made.shape != whole_type.shape ||
        !sizes.is_contiguous(made))
      return false;
    bool can = true;
    for_operands(graph_, u, [&](ValueId v) {
      if (graph_.type(v).kind == TypeKind::tensor)
        can = can && !flattened(v, whole_type, flat_type, NodeId()).is_none();
    });
    if (!can) return false;
  }
  for (NodeId u : users) {
    const ValueId result = graph_.node(u).result(0);
    if (graph_.op_name(u) == "aten.sym_size.int") {
      put_number(&graph_, result);
      graph_.erase(u);
      continue;
    }
    if (is_reshape(graph_.op_name(u))) {
      graph_.replace_uses_in(u, whole, flat);
      if (graph_.type(result) == flat_type) graph_.replace_uses(result, flat), graph_.erase(u);
      continue;
    }
    NodeSpec spec;
    std::vector<Arg> args = graph_.node(u).args;
    for (Arg& arg : args)
      arg.walk_mutable([&](Arg& a) {
        if (a.is(ArgKind::value) && graph_.type(a.as_value()).kind == TypeKind::tensor)
          a.set_value(a.as_value() == whole ? flat : flattened(a.as_value(), whole_type, flat_type, u));
      });
    const ValueId made = make(graph_.op_name(u), std::move(args), std::string(graph_.name(result)) + "_rows", u, u);
    std::vector<Arg> list;
    for (Expr e : whole_type.shape) list.push_back(size_of(e));
    const ValueId back =
        make("aten.view.default", {Arg::value(made), Arg::list(std::move(list))}, graph_.name(result), u, u);
    graph_.replace_uses(result, back);
    graph_.erase(u);
  }
  graph_.erase(n);
  return true;
}

}  // namespace sg
