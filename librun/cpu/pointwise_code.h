// PointwiseCode: the steps of a pointwise program, before and after register allocation.
//
// While the code is built, every step defines a new register, and values are rounded to a narrow element type only when
// they are used again (stores round by themselves). `place` then assigns each register: to the memory of a tensor if
// the contents are identical, else to one of a few blocks of scratch memory.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "libgraph/scalar.h"
#include "librun/cpu/block/block.h"
#include "librun/cpu/pointwise_walk.h"
#include "librun/tensor.h"

namespace sg::cpu {

// A register as a value of some element type. `rounded`: every element is representable in that type.
struct Value {
  int reg = -1;
  DType dtype = DType::none;
  bool rounded = true;
};

struct Step {
  enum class Kind : uint8_t { constant, load, compute, store };
  Kind kind = Kind::compute;
  uint8_t arity = 0;
  bool fixed = false;  // the same for every block: done once per thread
  int out = -1, slot = -1;
  std::array<int, kMaxOperands> in{};
  BlockOp op = BlockOp::copy;   // compute: applied in `lane`, or a conversion
  Lane lane = Lane::f32;        // of the operands
  bool converts = false;        // compute: from `lane` to the lane of `out`
  DType result = DType::none;   // compute: what the result is rounded to next
  std::complex<double> number;  // constant
  int64_t integer = 0;
};

// Where a register is: `slot` < 0 = in scratch memory at `offset`, else in that tensor, at the current block.
struct Place {
  int slot = -1;
  int64_t offset = 0;
};

class PointwiseCode {
 public:
  // --- writing ---
  Value constant(Scalar s, DType dtype);  // as exact as the lane allows
  Value load(int slot, const Tensor& view);
  Value compute(BlockOp op, Lane lane, std::initializer_list<Value> operands, DType result);
  Value convert(Value v, DType to, bool round = true);  // `round` false: of the lane, but wider than `to`
  Value rounded(Value v);
  void store(int slot, const Tensor& view, Value v);  // replaces earlier stores to the slot

  size_t size() const { return steps.size(); }
  void cut(size_t step_count, size_t register_count);  // back to an earlier state

  // --- placing ---
  void place(std::span<const Layout> layouts, std::span<const Tensor> slots, bool stream);

  std::vector<Step> steps;
  std::vector<Lane> lanes;    // by register
  std::vector<Place> places;  // by register, once placed
  int64_t scratch_bytes = 0;

 private:
  int define(Lane lane);
  void mark_fixed(std::span<const Layout> layouts);
  void find_last_uses();
  bool overwritten(int slot, size_t after, std::span<const Tensor> slots, int reg) const;
  bool lies_as_is(int slot, std::span<const Layout> layouts, std::span<const Tensor> slots) const;
  void place_in_memory(std::span<const Layout> layouts, std::span<const Tensor> slots, bool stream);
  void place_in_scratch();

  std::vector<size_t> last_use_;  // by register: step
};

}  // namespace sg::cpu
