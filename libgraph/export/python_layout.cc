#include "libgraph/export/python_layout.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "libgraph/op.h"
#include "libgraph/operands.h"

namespace sg::python {

namespace {

// Views that need particular strides, or that may look at memory beyond the sizes.
constexpr std::array<std::string_view, 7> kStrictViews = {
    "aten.view.default",        "aten._unsafe_view.default",   "aten.view.dtype",
    "aten.as_strided.default",  "aten._reshape_alias.default", "aten.view_as_complex.default",
    "aten.view_as_real.default"};

bool is_strict(std::string_view name) {
  return std::find(kStrictViews.begin(), kStrictViews.end(), name) != kStrictViews.end();
}

// Row-major; the stride of a dimension of size 1 does not matter.
bool lies_contiguously(Pool& pool, const Type& t) {
  const std::vector<Expr> wanted = pool.contiguous_strides(t.shape);
  for (size_t d = 0; d < t.shape.size(); ++d)
    if (t.stride[d] != wanted[d] && t.shape[d] != pool.exprs.constant(1)) return false;
  return true;
}

bool is_tensor_of_rows(const Type& t) { return t.kind == TypeKind::tensor && t.shape.size() >= 2; }

bool lies_permuted(Pool& pool, const Type& t) { return is_tensor_of_rows(t) && !lies_contiguously(pool, t); }

bool takes_permuted(const Graph& graph, const Node& node) {
  bool found = false;
  for (const Arg& top : node.args)
    top.walk([&](const Arg& arg) {
      if (found || !arg.is(ArgKind::value)) return;
      found = lies_permuted(graph.pool(), graph.type(arg.as_value()));
    });
  return found;
}

bool gives_permuted(const Graph& graph, const Node& node) {
  for (uint32_t i = 0; i < node.result_count; ++i)
    if (lies_permuted(graph.pool(), graph.type(node.result(i)))) return true;
  return false;
}

// Whether an eager kernel may choose other strides. Contractions have their own layout rules, the same in eager mode;
// the arguments of copies determine it.
bool may_lie_otherwise(const OpInfo& op) {
  constexpr uint32_t kOthers = kContraction | kView | kMayAlias | kCollective | kWait;
  return (op.traits & kOthers) == 0 && op.name != "aten.clone.default" && op.name != "aten._to_copy.default";
}

}  // namespace

std::vector<uint8_t> counted_layouts(const Graph& graph) {
  std::vector<uint8_t> under_view(graph.value_id_limit()), out(graph.value_id_limit());
  std::vector<NodeId> nodes;
  for (NodeId n : graph.nodes()) nodes.push_back(n);
  for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
    const Node& node = graph.node(*at);
    const OpInfo* op = find_op(graph.op_name(*at));
    if (!op) continue;
    bool is_counted = is_strict(op->name);
    for (uint32_t i = 0; i < node.result_count; ++i) is_counted |= under_view[node.result(i).index] != 0;
    if (!is_counted) continue;
    if (may_lie_otherwise(*op) && (takes_permuted(graph, node) || gives_permuted(graph, node))) {
      for (uint32_t i = 0; i < node.result_count; ++i) {
        ValueId v = node.result(i);
        out[v.index] = under_view[v.index] && is_tensor_of_rows(graph.type(v));
      }
    } else {  // its results lie as traced if its arguments do
      for_operands(graph, *at, [&](ValueId v) { under_view[v.index] = 1; });
    }
  }
  return out;
}

}  // namespace sg::python
