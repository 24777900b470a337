// Shared by the two implementations in which places gather their operands: convolution_gather.cc reads planes in place,
// convolution_gather_rows.cc treats places as rows. Both compute the same sums.
#pragma once

#include "librun/cpu/convolution_axes.h"
#include "librun/cpu/gemm_tile.h"
#include "librun/element.h"

namespace sg::cpu {

inline constexpr int64_t kGatherRows = 128;  // channels of the target multiplied at a time

// What is read and written. Steps of the weight: between channels of the target, and of the source.
struct GatherSides {
  const Image &source, &target;
  std::array<int64_t, 3> source_size, target_size;
  int64_t source_channels, target_channels;  // per group
  const Tensor &weight, &bias;
  int64_t target_step, source_step;
};

template <class T>
T bias_of(const Tensor& bias, int64_t channel) {
  if (bias.is_none()) return T(0);
  return visit_floating(bias.dtype, [&]<class B>() {
    return static_cast<T>(static_cast<Compute<B>>(bias.as<B>()[channel * bias.step(0)]));
  });
}

// One block of the sums, a @ b of `k` products, with row p of b at b + at[p]. The first one initializes the sums.
template <class P>
struct GatherBlock {
  const P *a, *b;
  const int64_t* at;
  int64_t k;
  bool first;
};

// The sums of `depth` products: blocks of kSumBlock, each computed separately by chains.
template <class P>
class GatherSums {
 public:
  using Sum = typename Packing<P>::Sum;
  GatherSums(const KernelCall& call, int64_t depth);
  // A tile of c (+)= a @ b for one block. With strict numerics the chain continues.
  void add_tile(const GatherBlock<P>& block, int64_t rows, Sum* c, int64_t step) const;
  // The same for any number of rows.
  void add_rows(const GatherBlock<P>& block, int64_t rows, Sum* c, int64_t step) const;
  int64_t columns() const { return kernels_.columns; }
  const TileKernels<P>& kernels() const { return kernels_; }

 private:
  const TileKernels<P>& kernels_;
  TileStart later_;
  int64_t chain_;
};

// Whether lines are so short, and the target has so many channels, that places should be rows.
template <class T>
bool gathers_by_rows(const ConvolutionGeometry& g, const GatherSides& sides, const ConvolutionTargets& t);
template <class T>
void gather_by_rows(KernelCall& call, const ConvolutionGeometry& g, const GatherSides& sides,
                    const ConvolutionTargets& t);

}  // namespace sg::cpu
