#include "libgraph/check_types.h"

#include <algorithm>

#include "libgraph/infer.h"

namespace sg {
namespace {

// All are of one recorder: TorchTitan's graph chunking, which copies a region's nodes and edits their recorded types.
constexpr TypeException kExceptions[] = {
    {"offset", "aten.split_with_sizes.default,aten.slice.Tensor",
     "graph chunking records parts of a split tensor without their storage offset"},
    {"symbols", "*",
     "graph chunking leaves the symbols of the original, or of its whole token axis, in the types of the copies"},
};

bool is_one_of(std::string_view name, std::string_view list) {
  if (list == "*") return true;
  for (size_t at = 0; at <= list.size();) {
    size_t end = std::min(list.find(',', at), list.size());
    if (list.substr(at, end - at) == name) return true;
    at = end + 1;
  }
  return false;
}

// Whether some node is a copy that a pass (not the user's model) made for chunking.
bool was_chunked(const Program& program) {
  const Pool& pool = program.graph.pool();
  for (NodeId n : program.graph.nodes()) {
    StrId producer = program.graph.meta(n).chunk.producer;
    if (!producer.is_none() && pool.strings[producer] == "graph") return true;
  }
  return false;
}

bool differ_in_symbols_only(const ExprPool& exprs, const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [&](Expr x, Expr y) {
           return x == y || !exprs.is_constant(x) || !exprs.is_constant(y);
         });
}

std::string_view kind_of(const ExprPool& exprs, const TypeDisagreement& d) {
  if (!d.reason.empty() || d.inferred.kind != d.recorded.kind) return "";
  if (d.recorded.kind == TypeKind::integer) return "symbols";
  Type same_offset = d.recorded;
  same_offset.offset = d.inferred.offset;
  if (same_offset == d.inferred) return "offset";
  bool symbols = d.recorded.dtype == d.inferred.dtype && d.recorded.device == d.inferred.device &&
                 differ_in_symbols_only(exprs, d.recorded.shape, d.inferred.shape) &&
                 differ_in_symbols_only(exprs, d.recorded.stride, d.inferred.stride);
  return symbols ? "symbols" : "";
}

const TypeException* exception_for(const TypeDisagreement& d) {
  std::string_view kind = kind_of(d.graph->pool().exprs, d);
  for (const TypeException& e : kExceptions)
    if (e.when == kind && is_one_of(d.graph->op_name(d.node), e.ops)) return &e;
  return nullptr;
}

void check_graph(const Graph& graph, TypeInferrer& inferrer, bool excused, std::vector<TypeDisagreement>* found) {
  for (NodeId n : graph.nodes()) {
    const OpInfo* op = graph.op_info(n);
    if (op == nullptr || op->infer == nullptr) continue;
    const Node& node = graph.node(n);
    auto types = inferrer.infer(graph, n);
    for (uint32_t i = 0; i < node.result_count; ++i) {
      const Type& recorded = graph.type(node.result(i));
      if (recorded.kind == TypeKind::unknown || (types.ok() && (*types)[i] == recorded)) continue;
      TypeDisagreement d{&graph, n, i, {}, recorded, {}, nullptr};
      if (types.ok()) d.inferred = (*types)[i];
      else d.reason = types.error().message;
      if (excused) d.exception = exception_for(d);
      found->push_back(std::move(d));
      if (!types.ok()) break;   // one reason a node
    }
  }
}

}  // namespace

std::span<const TypeException> type_exceptions() { return kExceptions; }

std::vector<TypeDisagreement> check_types(const Program& program) {
  std::vector<TypeDisagreement> found;
  TypeInferrer inferrer(program);
  bool excused = was_chunked(program);
  check_graph(program.graph, inferrer, excused, &found);
  for (const auto& nested : program.nested) check_graph(nested->graph, inferrer, excused, &found);
  return found;
}

}  // namespace sg
