#include "libgraph/infer/check_types.h"

#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/operands.h"

namespace sg {
namespace {

// "offset" and "symbols" come from TorchTitan's graph chunking, which copies a region's nodes and edits their recorded
// types. "offset": the record lacks the offset; possible anywhere in a chunked program, as the parts of a tensor split
// before that pass lose theirs too. "symbols": a copy, or a node that takes the result of one. The others can appear in
// anything traced with PyTorch's fake tensors: an "axis" of one entry, "mask", and on CPUs "statistics" of
// low-precision data with parameters in f32. "layout" is nobody's fault: layout_is_free().
constexpr std::string_view kNorms =
    "aten.native_layer_norm.default,aten.native_group_norm.default,aten.native_batch_norm.default,"
    "aten._native_batch_norm_legit.default,aten._native_batch_norm_legit.no_stats";

constexpr std::string_view kUnbind = "aten.unbind.int";
constexpr std::string_view kMasked =
    "aten.native_batch_norm_backward.default,aten.native_group_norm_backward.default,"
    "aten.native_layer_norm_backward.default,aten.convolution_backward.default";
constexpr std::string_view kLaidByStrides =
    "aten.empty_strided.default,aten.new_empty_strided.default,aten.empty_permuted.default,"
    "aten.as_strided_scatter.default";

constexpr TypeException kExceptions[] = {
    {"axis", kUnbind, "fake tensors keep the axis where only a guard says that it has one entry"},
    {"layout", "*",
     "PyTorch's kernels, its fake tensors and its versions lay out what this op makes in different orders"},
    {"mask", kMasked, "fake tensors record a gradient that is not asked for, which PyTorch's kernel does not give"},
    {"offset", "aten.split_with_sizes.default,aten.slice.Tensor",
     "graph chunking records parts of a split tensor without their storage offset"},
    {"symbols", "*",
     "graph chunking leaves the symbols of the original, or of its whole token axis, in the types of the copies"},
    {"statistics", kNorms,
     "fake tensors record the statistics of a norm in its input's type, where PyTorch's kernel keeps them in f32"},
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

bool both_constant(const ExprPool& exprs, Expr a, Expr b) { return exprs.is_constant(a) && exprs.is_constant(b); }

bool differ_in_symbols_only(const ExprPool& exprs, const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [&](Expr x, Expr y) { return x == y || !both_constant(exprs, x, y); });
}

// Whether an argument says how the result lies.
bool says_layout(const Arg& arg, const StringTable& strings) {
  return arg.is(ArgKind::memory_format) && !strings[arg.as_text()].ends_with("preserve_format");
}

std::string_view kind_of(const ExprPool& exprs, TypeInferrer& inferrer, const TypeDisagreement& d) {
  if (!d.reason.empty()) return "";
  if (d.inferred.kind == TypeKind::none && d.recorded.kind == TypeKind::tensor) return "mask";
  if (d.inferred.kind != d.recorded.kind) return "";
  if (d.recorded.kind == TypeKind::integer) {
    bool valued = d.recorded.has_value && d.inferred.has_value;
    return valued && !both_constant(exprs, d.recorded.value, d.inferred.value) ? "symbols" : "";
  }
  if (d.recorded.kind != TypeKind::tensor) return "";
  Type same_offset = d.recorded;
  same_offset.offset = d.inferred.offset;
  if (same_offset == d.inferred) return exprs.constant_value(d.recorded.offset) == 0 ? "offset" : "";
  Type same_stride = d.recorded;
  same_stride.stride = d.inferred.stride;
  if (same_stride == d.inferred)
    return layout_is_free(*d.graph, d.node) && inferrer.is_dense(d.recorded) ? "layout" : "";
  if (d.recorded.dtype == d.inferred.dtype && d.recorded.shape.size() == d.inferred.shape.size() + 1) return "axis";
  Type same_dtype = d.recorded;
  same_dtype.dtype = d.inferred.dtype;
  if (same_dtype == d.inferred)
    return d.inferred.dtype == DType::f32 && dtype_bytes(d.recorded.dtype) == 2 ? "statistics" : "";
  bool symbols =
      d.recorded.dtype == d.inferred.dtype && d.recorded.device == d.inferred.device &&
      (d.recorded.offset == d.inferred.offset || !both_constant(exprs, d.recorded.offset, d.inferred.offset)) &&
      differ_in_symbols_only(exprs, d.recorded.shape, d.inferred.shape) &&
      differ_in_symbols_only(exprs, d.recorded.stride, d.inferred.stride);
  return symbols ? "symbols" : "";
}

// `recorded` with what the rule gives where a size or the offset is a symbol that the node defines: a slice whose
// bounds are data has a length of its own.
Type with_defined(const ExprPool& exprs, const NodeMeta& meta, const Type& recorded, const Type& inferred) {
  Type out = recorded;
  if (!meta.binds || recorded.kind != TypeKind::tensor || inferred.kind != TypeKind::tensor ||
      recorded.shape.size() != inferred.shape.size())
    return out;
  auto settle = [&](Expr* mine, Expr theirs) {
    const auto symbol = mine->is_none() ? std::nullopt : exprs.as_symbol(*mine);
    if (symbol && std::ranges::find(*meta.binds, *symbol) != meta.binds->end()) *mine = theirs;
  };
  for (size_t d = 0; d < out.shape.size(); ++d) settle(&out.shape[d], inferred.shape[d]);
  settle(&out.offset, inferred.offset);
  return out;
}

// The first result with a recorded type, else the first: where entries about the whole node are attached.
uint32_t first_recorded(const Graph& graph, const Node& node) {
  for (uint32_t i = 0; i < node.result_count; ++i)
    if (graph.type(node.result(i)).kind != TypeKind::unknown) return i;
  return 0;
}

}  // namespace

bool TypeException::is_error() const { return when != "layout"; }

bool layout_is_free(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  constexpr uint32_t kNotOwn = kView | kMayAlias | kCollective | kWait | kHigherOrder;
  if (op == nullptr || (op->traits & kNotOwn) != 0 || is_one_of(op->name, kLaidByStrides)) return false;
  if (std::any_of(op->results.begin(), op->results.end(), [](const ResultInfo& r) { return r.alias != 0; }))
    return false;
  const std::vector<Arg>& args = graph.node(n).args;
  return std::none_of(args.begin(), args.end(), [&](const Arg& arg) { return says_layout(arg, graph.pool().strings); });
}

TypeChecker::TypeChecker(const Program& program)
    : inferrer_(program), pool_(program.graph.pool()), graph_producer_(pool_.strings.find("graph")) {
  for (NodeId n : program.graph.nodes())
    if (is_chunk_copy(program.graph, n)) was_chunked_ = true;
}

// Whether a chunking pass, not the user's model, made this copy.
bool TypeChecker::is_chunk_copy(const Graph& graph, NodeId n) const {
  return graph_producer_ && graph.meta(n).chunk.producer == graph_producer_;
}

bool TypeChecker::touches_chunk_copy(const Graph& graph, NodeId n) const {
  bool found = is_chunk_copy(graph, n);
  for_operands(graph, n, [&](ValueId v) {
    NodeId def = graph.value(v).def;
    found = found || (def && is_chunk_copy(graph, def));
  });
  return found;
}

bool TypeChecker::may_be_error(const Graph& graph, NodeId n) const {
  return was_chunked_ || is_one_of(graph.op_name(n), kNorms) || graph.op_name(n) == kUnbind ||
         is_one_of(graph.op_name(n), kMasked);
}

const TypeException* TypeChecker::exception_for(const TypeDisagreement& d) {
  std::string_view kind = kind_of(pool_.exprs, inferrer_, d);
  if ((kind == "offset" || kind == "symbols") && !was_chunked_) return nullptr;
  if (kind == "symbols" && !touches_chunk_copy(*d.graph, d.node)) return nullptr;
  for (const TypeException& e : kExceptions)
    if (e.when == kind && is_one_of(d.graph->op_name(d.node), e.ops)) return &e;
  return nullptr;
}

void TypeChecker::check(const Graph& graph, NodeId n, std::vector<TypeDisagreement>* found) {
  const OpInfo* op = graph.op_info(n);
  if (op == nullptr || op->infer == nullptr) return;
  const Node& node = graph.node(n);
  if (agreed_.contains_like(graph, n)) return;
  auto types = inferrer_.infer(graph, n);
  if (types.ok() && types->size() != node.result_count)
    types = Error{ErrorKind::unreadable,
                  plural(node.result_count, "result") + ", but the op gives " + std::to_string(types->size()),
                  {},
                  {}};
  if (!types.ok()) {
    TypeDisagreement d{&graph, n, first_recorded(graph, node), {}, {}, types.error().message, types.error().hint,
                       nullptr};
    if (d.result < node.result_count) d.recorded = graph.type(node.result(d.result));
    found->push_back(std::move(d));
    return;
  }
  const size_t before = found->size();
  for (uint32_t i = 0; i < node.result_count; ++i) {
    const Type& said = graph.type(node.result(i));
    if (said.kind == TypeKind::unknown || (*types)[i] == said) continue;
    Type recorded = with_defined(pool_.exprs, graph.meta(n), said, (*types)[i]);
    if (recorded == (*types)[i]) continue;
    TypeDisagreement d{&graph, n, i, std::move((*types)[i]), std::move(recorded), {}, {}, nullptr};
    d.exception = exception_for(d);
    found->push_back(std::move(d));
  }
  if (found->size() == before) agreed_.add_last();
}

std::vector<TypeDisagreement> check_types(const Program& program) {
  std::vector<TypeDisagreement> found;
  TypeChecker checker(program);
  for (NodeId n : program.graph.nodes()) checker.check(program.graph, n, &found);
  for (const auto& nested : program.nested)
    for (NodeId n : nested->graph.nodes()) checker.check(nested->graph, n, &found);
  std::erase_if(found, [](const TypeDisagreement& d) { return d.recorded.kind == TypeKind::unknown; });
  return found;
}

}  // namespace sg
