#include "libgraph/facts/view_rule.h"

#include <optional>
#include <string_view>

#include "libgraph/op.h"

namespace sg {
namespace {

std::optional<std::vector<int64_t>> numbers(const Pool& pool, const std::vector<Expr>& list, const SizeValues* values) {
  static const SizeValues kNone = [](StrId) -> std::optional<int64_t> { return std::nullopt; };
  std::vector<int64_t> out;
  for (Expr e : list) {
    auto v = evaluate_size(pool, e, values ? *values : kNone);
    if (!v || *v < 0) return std::nullopt;
    out.push_back(*v);
  }
  return out;
}

// Contiguous for all values of the symbols: each stride is the product of the sizes after it; producers may also write
// max(1, size) for a size.
bool contiguous_for_all(Pool& pool, const Type& type) {
  Expr one = pool.exprs.constant(1);
  Expr plain = one, guarded = one;
  for (size_t i = type.shape.size(); i-- > 0;) {
    bool matches = type.stride[i] == plain || type.stride[i] == guarded;
    if (!matches && type.shape[i] != one) return false;
    plain = pool.exprs.mul(plain, type.shape[i]);
    guarded = pool.exprs.mul(guarded, pool.exprs.max(one, type.shape[i]));
  }
  return true;
}

bool contiguous(const std::vector<int64_t>& shape, const std::vector<int64_t>& stride) {
  int64_t expected = 1;
  bool dense = true;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && stride[i] != expected) dense = false;
    if (__builtin_mul_overflow(expected, shape[i], &expected)) expected = INT64_MAX;
  }
  return dense;
}

ViewAnswer answer(bool yes) { return yes ? ViewAnswer::yes : ViewAnswer::no; }

// Compares numbers where they are known: ranks ask concurrently and must not add expressions to the pool they share.
ViewAnswer contiguous_is_view(Pool& pool, const Type& from, const SizeValues* values) {
  auto shape = numbers(pool, from.shape, values), stride = numbers(pool, from.stride, values);
  if (shape && stride) return answer(contiguous(*shape, *stride));
  return contiguous_for_all(pool, from) ? ViewAnswer::yes : ViewAnswer::maybe;
}

ViewAnswer reshape_is_view(Pool& pool, const Type& from, const Type& to, const SizeValues* values) {
  if (from.shape == to.shape || contiguous_is_view(pool, from, values) == ViewAnswer::yes) return ViewAnswer::yes;
  auto shape = numbers(pool, from.shape, values), stride = numbers(pool, from.stride, values);
  auto new_shape = numbers(pool, to.shape, values);
  if (!shape || !stride || !new_shape) return ViewAnswer::maybe;
  return answer(can_view(*shape, *stride, *new_shape));
}

const Arg* argument(const Graph& graph, NodeId n, std::string_view name) {
  int index = graph.op_info(n)->param_index(name);
  const std::vector<Arg>& args = graph.node(n).args;
  for (size_t i = 0; i < args.size(); ++i) {
    bool positional = args[i].key().is_none();
    if (positional ? static_cast<int>(i) == index : graph.pool().strings[args[i].key()] == name) return &args[i];
  }
  return nullptr;
}

// Whether a memory format other than `usual` is asked for (channels last and the like): strides alone do not decide
// then.
bool asks_for_layout(const Graph& graph, NodeId n, std::string_view usual) {
  const Arg* format = argument(graph, n, "memory_format");
  if (!format || format->is(ArgKind::none)) return false;
  return !(format->is(ArgKind::memory_format) &&
           graph.pool().strings[format->as_text()].find(usual) != std::string_view::npos);
}

ViewAnswer to_is_view(const Graph& graph, NodeId n, const Type& from, const Type& to) {
  if (from.dtype != to.dtype || from.device != to.device) return ViewAnswer::no;
  const Arg* copy = argument(graph, n, "copy");
  if (copy && copy->is(ArgKind::boolean) && copy->as_bool()) return ViewAnswer::no;
  if (copy && !copy->is(ArgKind::boolean)) return ViewAnswer::maybe;
  return asks_for_layout(graph, n, "preserve") ? ViewAnswer::maybe : ViewAnswer::yes;
}

}  // namespace

bool can_view(const std::vector<int64_t>& shape, const std::vector<int64_t>& stride,
              const std::vector<int64_t>& new_shape) {
  std::vector<std::pair<int64_t, int64_t>> runs;  // dimensions of size 1 dropped, dense neighbours merged
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return true;
    if (shape[i] == 1) continue;
    int64_t merged;
    bool joins = !runs.empty() && !__builtin_mul_overflow(shape[i], stride[i], &merged) && runs.back().second == merged;
    if (!joins) runs.push_back({shape[i], stride[i]});
    else if (__builtin_mul_overflow(runs.back().first, shape[i], &runs.back().first)) return false;
    else runs.back().second = stride[i];
  }
  size_t run = 0;
  int64_t filled = 1;  // how much of the run the new dimensions cover so far
  for (int64_t size : new_shape) {
    if (size == 1) continue;
    if (run == runs.size() || __builtin_mul_overflow(filled, size, &filled) || runs[run].first % filled != 0)
      return false;
    if (filled == runs[run].first) filled = 1, ++run;
  }
  return run == runs.size() && filled == 1;
}

ViewAnswer result_is_view(const Graph& graph, NodeId n, ValueId source, ValueId result, const SizeValues* values) {
  const Type& from = graph.type(source);
  const Type& to = graph.type(result);
  bool usable = from.kind == TypeKind::tensor && to.kind == TypeKind::tensor && from.stride.size() == from.shape.size();
  if (!usable) return ViewAnswer::maybe;
  std::string_view op = graph.op_name(n);
  auto is = [&](std::string_view family) { return op.starts_with(family); };
  if (is("aten.reshape.") || is("aten.flatten.")) return reshape_is_view(graph.pool(), from, to, values);
  if (is("aten.contiguous."))
    return asks_for_layout(graph, n, "contiguous") ? ViewAnswer::maybe : contiguous_is_view(graph.pool(), from, values);
  if (is("aten.to.")) return to_is_view(graph, n, from, to);
  return ViewAnswer::maybe;
}

}  // namespace sg
