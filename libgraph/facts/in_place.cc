#include "libgraph/facts/in_place.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

namespace sg {
namespace {

// A row of the result depends only on the same row of the arguments, and every backend reads a row before it writes it.
constexpr std::string_view kRowLocal[] = {
    "aten._log_softmax.default",
    "aten._log_softmax_backward_data.default",
    "aten._safe_softmax.default",
    "aten._softmax.default",
    "aten._softmax_backward_data.default",
    "aten.log_softmax.int",
    "aten.softmax.int",
    "sg.cross_entropy_backward",
};

struct Dim {
  int64_t size, stride;
  friend bool operator==(const Dim&, const Dim&) = default;
};

// How elements follow each other in memory: dimensions of size 1 are dropped and dense neighbours merged, so that
// a [4, 8] and its flat view are equal. No dimension is empty.
struct Walk {
  std::vector<Dim> dims;
  int64_t begin = 0;  // byte offset into the storage
  friend bool operator==(const Walk&, const Walk&) = default;
};

std::optional<Walk> walk_of(const Pool& pool, const Type& type, const SizeValues& values) {
  if (type.kind != TypeKind::tensor || type.shape.size() != type.stride.size()) return std::nullopt;
  Walk walk;
  auto offset = type.offset.is_none() ? 0 : evaluate_size(pool, type.offset, values);
  if (!offset || __builtin_mul_overflow(*offset, dtype_bytes(type.dtype), &walk.begin)) return std::nullopt;
  for (size_t i = 0; i < type.shape.size(); ++i) {
    auto size = evaluate_size(pool, type.shape[i], values), stride = evaluate_size(pool, type.stride[i], values);
    if (!size || !stride || *size <= 0 || *stride < 0) return std::nullopt;
    if (*size == 1) continue;
    int64_t run;
    if (__builtin_mul_overflow(*size, *stride, &run)) return std::nullopt;
    int64_t merged;
    if (!walk.dims.empty() && walk.dims.back().stride == run &&
        !__builtin_mul_overflow(walk.dims.back().size, *size, &merged))
      walk.dims.back() = {merged, *stride};
    else walk.dims.push_back({*size, *stride});
  }
  return walk;
}

// Whether no two elements share a place: each stride steps over everything that the smaller ones reach.
bool is_injective(Walk walk) {
  std::sort(walk.dims.begin(), walk.dims.end(), [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
  int64_t reach = 0;  // the furthest element so far
  for (const Dim& d : walk.dims) {
    int64_t step;
    if (d.stride <= reach || __builtin_mul_overflow(d.size - 1, d.stride, &step) ||
        __builtin_add_overflow(reach, step, &reach))
      return false;
  }
  return true;
}

}  // namespace

int64_t plan_alignment(int64_t bytes) {
  int64_t alignment = 1;
  while (alignment < bytes && alignment < kPlanAlignment) alignment *= 2;
  return alignment;
}

// An op that may alias (kMayAlias) does not qualify: where it copies, the layouts differ.
bool reuses_in_place(const OpInfo& op) {
  return (op.has(kPointwise) && !op.has(kMayAlias)) || std::ranges::find(kRowLocal, op.name) != std::end(kRowLocal);
}

std::optional<int64_t> in_place_offset(const Graph& graph, const AliasAnalysis& alias, const SizeValues& values,
                                       NodeId n, StoredValue result, StoredValue argument) {
  const Pool& pool = graph.pool();
  const Type &to = graph.type(result.value), &from = graph.type(argument.value);
  if (to.device != from.device || dtype_bytes(to.dtype) != dtype_bytes(from.dtype)) return std::nullopt;
  auto into = walk_of(pool, to, values), out_of = walk_of(pool, from, values);
  if (!into || !out_of || into->dims != out_of->dims || !is_injective(*into)) return std::nullopt;
  int64_t at = out_of->begin - into->begin, end;
  if (at < 0 || at % plan_alignment(result.bytes) != 0 || __builtin_add_overflow(at, result.bytes, &end) ||
      end > argument.bytes)
    return std::nullopt;
  StorageId s = alias.storage_of(argument.value);
  bool legal = true;
  for (const Arg& arg : graph.node(n).args)
    arg.walk([&](const Arg& a) {
      if (!legal || !a.is(ArgKind::value) || alias.storage_of(a.as_value()) != s || a.as_value() == argument.value)
        return;
      const Type& type = graph.type(a.as_value());
      auto other = walk_of(pool, type, values);
      if (other && *other == *out_of && dtype_bytes(type.dtype) == dtype_bytes(from.dtype)) return;
      auto other_end = storage_bytes(pool, type, values);
      legal = other && other_end && (*other_end <= at || other->begin >= end);
    });
  return legal ? std::optional<int64_t>(at) : std::nullopt;
}

}  // namespace sg
