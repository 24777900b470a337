#include "tests/support/random_inputs.h"

#include <cstring>
#include <memory>

#include "libgraph/data/safetensors.h"
#include "libgraph/expr/sizes.h"
#include "librun/element.h"
#include "tests/support/rng.h"

namespace sg::test {
namespace {

template <class T>
T draw(Rng& rng) {
  const int64_t small = static_cast<int64_t>(rng.below(4));
  if constexpr (std::is_same_v<T, bool>) return small > 1;
  else if constexpr (std::is_integral_v<T>) return static_cast<T>(small);
  else if constexpr (is_complex_type<T>) return T(static_cast<typename T::value_type>(small - 2), 1);
  else return T(static_cast<float>(static_cast<int64_t>(rng.below(2001)) - 1000) / 512);
}

}  // namespace

Status write_random_inputs(const Job& job, uint64_t seed, const std::string& path) {
  const Program& program = *job.programs[0];
  const SizeValues eight = [](StrId) { return std::optional<int64_t>(8); };
  Rng rng(seed);
  std::vector<TensorToWrite> list;
  std::vector<std::unique_ptr<std::byte[]>> memory;
  for (const Input& input : program.graph.inputs()) {
    const Type& type = program.graph.type(input.value);
    TensorToWrite t;
    t.name = program.graph.name(input.value);
    t.dtype = type.kind == TypeKind::tensor ? type.dtype : DType::i64;
    if (input.kind == InputKind::opaque || !is_runnable(t.dtype)) continue;
    if (type.kind != TypeKind::tensor && type.kind != TypeKind::integer) continue;
    int64_t count = 1;
    for (Expr e : type.shape)
      t.shape.push_back(evaluate_size(*job.pool, e, eight).value_or(0)), count *= t.shape.back();
    memory.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(count * dtype_bytes(t.dtype)) + 1));
    t.data = memory.back().get();
    visit_dtype(t.dtype, [&]<class T>() {
      for (int64_t i = 0; i < count; ++i) {
        const T value = type.kind == TypeKind::tensor ? draw<T>(rng) : T(8);
        std::memcpy(memory.back().get() + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
      }
    });
    list.push_back(std::move(t));
  }
  return write_tensors(path, list);
}

}  // namespace sg::test
