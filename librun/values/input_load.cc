#include "librun/values/input_load.h"

#include <cstring>

#include "libgraph/data/constant_data.h"

namespace sg {

InputLoad::InputLoad(const Job& of_job, const Program& of_rank, const InputSource& from)
    : job(of_job), program(of_rank), graph(of_rank.graph), source(from), matching(graph, from.may_spare, &findings) {
  out.tensors.resize(count());
  out.scalars.resize(count());
}

std::optional<std::string> InputLoad::held(size_t i) const {
  return input(i).digest ? held_bytes(graph.pool().strings[input(i).digest]) : std::nullopt;
}

bool InputLoad::needs_value(size_t i) const {
  if (input(i).kind == InputKind::opaque || !graph.is_used(input(i).value) || held(i)) return false;
  return type(i).kind == TypeKind::tensor || (is_number(type(i)) && !type(i).has_value);
}

std::string InputLoad::recorded(size_t i) const {
  std::string text = std::string(dtype_name(type(i).dtype)) + "[";
  for (size_t d = 0; d < type(i).shape.size(); ++d) {
    Expr e = type(i).shape[d];
    text += (d == 0 ? "" : ", ") + job.pool->exprs.print(e);
    if (job.pool->exprs.is_constant(e)) continue;
    if (auto value = out.symbols.value(job.pool->exprs, e)) text += " = " + std::to_string(*value);
  }
  return text + "]";
}

std::string InputLoad::only_file() const { return source.files.size() == 1 ? source.files[0] : std::string(); }

std::string InputLoad::file_name(size_t i) const {
  return stored(i) != nullptr ? out.files[matching.file_of(i)].name() : only_file();
}

Location InputLoad::at(size_t i) const {
  Location where{file_name(i)};
  where.offset = stored(i)->offset;
  return where;
}

bool is_number(const Type& type) {
  return type.kind == TypeKind::integer || type.kind == TypeKind::floating || type.kind == TypeKind::boolean;
}

std::optional<Scalar> number_in(const StoredTensor& t, const Type& type) {
  auto is = [&](DType d) { return t.dtype == d; };
  if (type.kind == TypeKind::floating && (is(DType::f64) || is(DType::f32))) {
    double value = 0;
    float narrow = 0;
    std::memcpy(is(DType::f64) ? static_cast<void*>(&value) : &narrow, t.data, t.bytes);
    return Scalar::floating(is(DType::f64) ? value : narrow);
  }
  if (type.kind == TypeKind::integer && (is(DType::i64) || is(DType::i32))) {
    int64_t value = 0;
    int32_t narrow = 0;
    std::memcpy(is(DType::i64) ? static_cast<void*>(&value) : &narrow, t.data, t.bytes);
    return Scalar::integer(is(DType::i64) ? value : narrow);
  }
  if (type.kind == TypeKind::boolean && is(DType::boolean))
    return Scalar::boolean(*static_cast<const char*>(t.data) != 0);
  return std::nullopt;
}

}  // namespace sg
