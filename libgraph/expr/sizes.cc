#include "libgraph/expr/sizes.h"

#include "libgraph/base/checked.h"

namespace sg {
namespace {

std::optional<int64_t> tensor_storage_bytes(const Pool& pool, const Type& type, const SizeValues& values) {
  if (type.stride.size() != type.shape.size()) return std::nullopt;
  std::optional<int64_t> last = type.offset.is_none() ? 0 : evaluate_size(pool, type.offset, values);
  bool empty = false;
  for (size_t i = 0; i < type.shape.size(); ++i) {
    auto size = evaluate_size(pool, type.shape[i], values);
    auto stride = evaluate_size(pool, type.stride[i], values);
    if (!size || !stride || *size < 0 || *stride < 0) return std::nullopt;
    if (*size == 0) empty = true;
    auto step = checked_mul(*size - (*size > 0), *stride);
    if (!last || !step) return std::nullopt;
    last = checked_add(*last, *step);
  }
  if (empty) return 0;
  if (!last || *last < 0 || *last == INT64_MAX) return std::nullopt;
  return checked_mul(*last + 1, dtype_bytes(type.dtype));
}

// Depth is bounded, as a file may nest list types arbitrarily deep.
std::optional<int64_t> storage_bytes_at(const Pool& pool, const Type& type, const SizeValues& values, int depth) {
  if (type.kind == TypeKind::tensor) return tensor_storage_bytes(pool, type, values);
  if (type.kind == TypeKind::unknown || type.kind == TypeKind::opaque) return std::nullopt;
  if (type.kind != TypeKind::list) return 0;
  if (depth > 16) return std::nullopt;
  int64_t total = 0;
  for (TypeId element : type.elements) {
    auto bytes = storage_bytes_at(pool, pool.types[element], values, depth + 1);
    auto sum = bytes ? checked_add(total, *bytes) : std::nullopt;
    if (!sum) return std::nullopt;
    total = *sum;
  }
  return total;
}

}  // namespace

std::optional<int64_t> evaluate_size(const Pool& pool, Expr e, const SizeValues& values) {
  if (e.is_none() || pool.exprs.is_invalid(e)) return std::nullopt;
  if (auto constant = pool.exprs.constant_value(e)) return constant;
  return pool.exprs.evaluate(e, values);
}

std::optional<int64_t> element_count(const Pool& pool, const Type& type, const SizeValues& values) {
  if (type.kind != TypeKind::tensor) return std::nullopt;
  std::optional<int64_t> count = 1;
  bool empty = false;
  for (Expr e : type.shape) {
    auto size = evaluate_size(pool, e, values);
    if (!size || *size < 0) return std::nullopt;
    if (*size == 0) empty = true;
    if (count && !empty) count = checked_mul(*count, *size);
  }
  return empty ? 0 : count;
}

std::optional<int64_t> distinct_bytes(const Pool& pool, const Type& type, const SizeValues& values) {
  auto count = element_count(pool, type, values);
  if (!count || *count == 0) return count;
  int64_t distinct = *count;
  for (size_t i = 0; i < type.shape.size() && i < type.stride.size(); ++i)
    if (auto stride = evaluate_size(pool, type.stride[i], values); stride && *stride == 0)
      distinct /= *evaluate_size(pool, type.shape[i], values);
  return checked_mul(distinct, dtype_bytes(type.dtype));
}

std::optional<int64_t> storage_bytes(const Pool& pool, const Type& type, const SizeValues& values) {
  return storage_bytes_at(pool, type, values, 0);
}

}  // namespace sg
