// Views of views that are one view: consecutive transposes and permutations, and consecutive reshapes. The second is
// applied to the operand of the first, which is removed if it has no other user.
#include <numeric>
#include <optional>
#include <utility>

#include "libgraph/infer/infer_sizes.h"
#include "libpasses/clean/clean_parts.h"

namespace sg::clean_parts {
namespace {

using Order = std::vector<int64_t>;  // dimension i of the result is dimension order[i] of the argument

std::optional<int64_t> dimension(const Arg& arg, size_t rank) {
  if (!arg.is(ArgKind::integer)) return std::nullopt;
  const int64_t n = static_cast<int64_t>(rank), d = arg.as_int() < 0 ? arg.as_int() + n : arg.as_int();
  return d >= 0 && d < n ? std::optional(d) : std::nullopt;
}

class Shortener {
 public:
  explicit Shortener(Scope& scope)
      : graph_(scope.graph), tally_(scope.tally), sizes_(&scope.graph.pool(), &scope.program) {}

  size_t run(const AliasAnalysis& alias) {
    size_t changes = 0;
    for (NodeId n : graph_.nodes()) {
      const NodeId first = source_view(n);
      if (!first || is_deliberate_copy(graph_, n) || is_deliberate_copy(graph_, first)) continue;
      const bool joined = join_orders(first, n) || join_shapes(first, n, alias);
      if (joined)
        tally_.add(Kind::chain, graph_, n, "is taken of what %" + std::string(graph_.label(first)) + " shows");
      changes += joined;
    }
    return changes;
  }

 private:
  // The node whose only result `n` views, if nothing else uses it.
  NodeId source_view(NodeId n) const {
    const Node& node = graph_.node(n);
    if (node.args.empty() || !node.args[0].is(ArgKind::value) || node.result_count != 1 ||
        !graph_.is_used(node.result(0)))
      return {};
    const ValueId v = node.args[0].as_value();
    const NodeId def = graph_.value(v).def;
    const bool alone = def && graph_.value(v).use_count == 1 && graph_.node(def).result_count == 1;
    return alone && !graph_.node(def).args.empty() && graph_.node(def).args[0].is(ArgKind::value) ? def : NodeId();
  }

  std::optional<Order> order_of(NodeId n) const {
    const Node& node = graph_.node(n);
    const std::string_view op = graph_.op_name(n);
    const size_t rank = graph_.type(node.result(0)).shape.size();
    Order out(rank);
    std::iota(out.begin(), out.end(), 0);
    if (op == "aten.t.default" && rank == 2) {
      std::swap(out[0], out[1]);
      return out;
    }
    if (op == "aten.transpose.int" && node.args.size() == 3) {
      const auto a = dimension(node.args[1], rank), b = dimension(node.args[2], rank);
      if (!a || !b) return std::nullopt;
      std::swap(out[static_cast<size_t>(*a)], out[static_cast<size_t>(*b)]);
      return out;
    }
    if (op != "aten.permute.default" || node.args.size() != 2 || !node.args[1].is(ArgKind::list)) return std::nullopt;
    const ArgList& dims = node.args[1].items();
    if (dims.size() != rank) return std::nullopt;
    for (size_t i = 0; i < rank; ++i) {
      const auto d = dimension(dims[i], rank);
      if (!d) return std::nullopt;
      out[i] = *d;
    }
    return out;
  }

  bool join_orders(NodeId first, NodeId second) {
    const std::optional<Order> inner = order_of(first), outer = inner ? order_of(second) : std::nullopt;
    if (!outer || inner->size() != outer->size()) return false;
    ArgList dims;
    for (int64_t d : *outer) dims.push_back(Arg::integer((*inner)[static_cast<size_t>(d)]));
    graph_.set_op(second, graph_.pool().op("aten.permute.default"));
    graph_.set_args(second, {graph_.node(first).args[0], Arg::list(std::move(dims))});
    return true;
  }

  static bool is_reshape(std::string_view op) {
    return op == "aten.view.default" || op == "aten._unsafe_view.default" || op == "aten.reshape.default";
  }

  // Only if both are certainly views, and the second has the strides that a view of the source would have.
  bool join_shapes(NodeId first, NodeId second, const AliasAnalysis& alias) {
    if (!is_reshape(graph_.op_name(first)) || !is_reshape(graph_.op_name(second))) return false;
    const ValueId source = graph_.node(first).args[0].as_value(), result = graph_.node(second).result(0);
    const StorageId s = alias.storage_of(source);
    if (s.is_none() || !alias.storage(s).certain || alias.storage_of(result) != s) return false;
    const Type &from = graph_.type(source), &to = graph_.type(result);
    if (from.kind != TypeKind::tensor || to.kind != TypeKind::tensor || from.dtype != to.dtype) return false;
    const std::optional<Exprs> strides = sizes_.view_strides(from, to.shape);
    if (!strides || *strides != to.stride) return false;
    std::vector<Arg> args = graph_.node(second).args;
    args[0].set_value(source);
    graph_.set_args(second, std::move(args));
    return true;
  }

  Graph& graph_;
  Tally& tally_;
  Sizes sizes_;
};

}  // namespace

size_t shorten_chains(Scope& scope, const AliasAnalysis& alias) { return Shortener(scope).run(alias); }

}  // namespace sg::clean_parts
