#include "librun/cpu/pair_blocks.h"

#include <array>

namespace sg::cpu {

BlockOperand::BlockOperand(KernelCall& call) {
  auto* ones = call.scratch().take<double>(kLaneBlock);
  std::fill_n(ones, kLaneBlock, 1.0);
  same_ = ones;
}

BlockOperand::BlockOperand(KernelCall& call, const Tensor& t, std::span<const int64_t> shape) {
  const Tensor wide = broadcast_to(t, shape);
  bool one = true;
  for (int k = 0; k < wide.rank; ++k) one = one && (wide.dim(k) == 1 || wide.step(k) == 0);
  if (!one) {
    reader_.emplace(call, is_floating(t.dtype) ? contiguous(call, wide) : contiguous_as(call, wide, DType::f64),
                    kLaneBlock);
    return;
  }
  if (wide.elements() == 0) return;
  const Tensor same = call.scratch().tensor(DType::f64, std::array{kLaneBlock});
  copy(call, same, broadcast_to(make_tensor(wide.data, wide.dtype, {}), same.sizes()));
  same_ = same.as<double>();
}

}  // namespace sg::cpu
