// The versions of the block functions, and the selection of the one that this CPU runs.
#include <atomic>

#include "librun/cpu/block/block.h"

// clang-format off
#define SG_FOR_EACH_FAMILY(X) \
  X(add_arithmetic) X(add_integers) X(add_tests) X(add_math) X(add_activations) X(add_complex) X(add_complex_functions) \
  X(add_special) X(add_memory)
// clang-format on

namespace sg::cpu {

#define SG_DECLARE(add) void add(BlockTable&);
namespace isa_baseline {
SG_FOR_EACH_FAMILY(SG_DECLARE)
}
#if SG_X86_VERSIONS
namespace isa_v3 {
SG_FOR_EACH_FAMILY(SG_DECLARE)
}
namespace isa_v4 {
SG_FOR_EACH_FAMILY(SG_DECLARE)
}
#endif
#undef SG_DECLARE

namespace {

BlockTable baseline_table() {
  BlockTable t;
#define SG_ADD(add) isa_baseline::add(t);
  SG_FOR_EACH_FAMILY(SG_ADD)
#undef SG_ADD
  return t;
}

#if SG_X86_VERSIONS
BlockTable v3_table() {
  BlockTable t;
#define SG_ADD(add) isa_v3::add(t);
  SG_FOR_EACH_FAMILY(SG_ADD)
#undef SG_ADD
  return t;
}

BlockTable v4_table() {
  BlockTable t;
#define SG_ADD(add) isa_v4::add(t);
  SG_FOR_EACH_FAMILY(SG_ADD)
#undef SG_ADD
  return t;
}
#endif

bool processor_has(BlockIsa isa) {
#if SG_X86_VERSIONS
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
            __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("popcnt") &&
            __builtin_cpu_supports("f16c") && __builtin_cpu_supports("movbe");
  if (isa == BlockIsa::v3) return v3;
  if (isa == BlockIsa::v4) {
    return v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
  }
#endif
  return isa == BlockIsa::baseline;
}

BlockIsa best_isa() {
  for (BlockIsa isa : {BlockIsa::v4, BlockIsa::v3})
    if (processor_has(isa)) return isa;
  return BlockIsa::baseline;
}

std::atomic<const BlockTable*>& chosen_table() {
  static std::atomic<const BlockTable*> table{block_table(best_isa())};
  return table;
}

}  // namespace

Lane lane_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::bf16:
    case DType::f16:
    case DType::f8e4m3fn:
    case DType::f8e5m2:
    case DType::f8e4m3fnuz:
    case DType::f8e5m2fnuz: return Lane::f32;
    case DType::f64: return Lane::f64;
    case DType::boolean: return Lane::b8;
    case DType::c64: return Lane::c64;
    case DType::c128: return Lane::c128;
    default: return Lane::i64;
  }
}

const BlockTable* block_table(BlockIsa isa) {
  if (!processor_has(isa)) return nullptr;
#if SG_X86_VERSIONS
  static const BlockTable v3 = v3_table(), v4 = v4_table();
  if (isa == BlockIsa::v3) return &v3;
  if (isa == BlockIsa::v4) return &v4;
#endif
  static const BlockTable baseline = baseline_table();
  return &baseline;
}

const BlockTable& best_block_table() { return *chosen_table().load(std::memory_order_relaxed); }

bool use_block_table(BlockIsa isa) {
  const BlockTable* table = block_table(isa);
  if (table) chosen_table().store(table, std::memory_order_relaxed);
  return table != nullptr;
}

}  // namespace sg::cpu
