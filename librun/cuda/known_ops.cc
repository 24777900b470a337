#include "librun/cuda/known_ops.h"

#include <array>

namespace sg::cuda {
namespace {

using cpu::BlockOp;
using cpu::Lane;

struct Known {
  std::array<std::array<KnownOp, cpu::kLanes>, cpu::kBlockOps> rows{};
  std::array<const char*, cpu::kBlockOps> names{};

  Known() {
    auto set = [&](BlockOp op, std::initializer_list<Lane> lanes, KnownOp what, const char* name) {
      names[static_cast<size_t>(op)] = name;
      for (Lane lane : lanes) rows[static_cast<size_t>(op)][static_cast<size_t>(lane)] = what;
    };
#define REAL(op, ...) set(BlockOp::op, {Lane::f32, Lane::f64}, KnownOp::value, #op);
#define WHOLE(op, ...) set(BlockOp::op, {Lane::i64}, KnownOp::value, #op);
#define FLAG(op, ...) set(BlockOp::op, {Lane::b8}, KnownOp::value, #op);
#define CX(op, ...) set(BlockOp::op, {Lane::c64, Lane::c128}, KnownOp::value, #op);
#define REAL_TEST(op, ...) set(BlockOp::op, {Lane::f32, Lane::f64}, KnownOp::test, #op);
#define WHOLE_TEST(op, ...) set(BlockOp::op, {Lane::i64}, KnownOp::test, #op);
#define FLAG_TEST(op, ...) set(BlockOp::op, {Lane::b8}, KnownOp::test, #op);
#define CX_TEST(op, ...) set(BlockOp::op, {Lane::c64, Lane::c128}, KnownOp::test, #op);
#include "librun/cuda/kernels/element_ops.def"
#undef REAL
#undef WHOLE
#undef FLAG
#undef CX
#undef REAL_TEST
#undef WHOLE_TEST
#undef FLAG_TEST
#undef CX_TEST
    set(BlockOp::where, {Lane::f32, Lane::f64, Lane::i64, Lane::b8, Lane::c64, Lane::c128}, KnownOp::value, "where");
    for (auto [op, name] : {std::pair{BlockOp::complex, "complex"}, {BlockOp::polar, "polar"}})
      set(op, {Lane::f32, Lane::f64}, KnownOp::value, name);
    for (auto [op, name] : {std::pair{BlockOp::abs, "abs"}, {BlockOp::angle, "angle"}})
      set(op, {Lane::c64, Lane::c128}, KnownOp::value, name);
  }
};

const Known& known() {
  static const Known table;
  return table;
}

}  // namespace

KnownOp known_op(BlockOp op, Lane lane) { return known().rows[static_cast<size_t>(op)][static_cast<size_t>(lane)]; }

std::string op_name(BlockOp op) {
  const char* name = known().names[static_cast<size_t>(op)];
  return name ? name : "?";
}

bool has_near_op(BlockOp op) {
  switch (op) {
#define NEAR(op, ...) \
  case BlockOp::op:   \
    return true;
#include "librun/cuda/kernels/near_ops.def"
#undef NEAR
    default: return false;
  }
}

}  // namespace sg::cuda
