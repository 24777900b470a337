#include "librun/cpu/dot_product.h"

#include <algorithm>
#include <cmath>

#include "librun/cpu/gemm_tile.h"
#include "librun/cpu/isa.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

constexpr int64_t kChains = 8;  // computed in parallel

// sums[c] is the chain over block c of kSumBlock elements.
template <class T>
SG_CLONES void run_chains(const T* a, const T* b, T* sums) {
  T sum[kChains] = {};
  for (int64_t k = 0; k < kSumBlock; ++k)
    for (int64_t c = 0; c < kChains; ++c) sum[c] = std::fma(a[c * kSumBlock + k], b[c * kSumBlock + k], sum[c]);
  for (int64_t c = 0; c < kChains; ++c) sums[c] = sum[c];
}

template <class T>
SG_CLONES T run_chain(const T* a, const T* b, int64_t n) {
  T sum = 0;
  for (int64_t k = 0; k < n; ++k) sum = std::fma(a[k], b[k], sum);
  return sum;
}

}  // namespace

template <class T>
void dot_product(KernelCall& call, const T* a, const T* b, int64_t n, const Tensor& out) {
  constexpr int64_t kGroup = kChains * kSumBlock;
  const int64_t blocks = (n + kSumBlock - 1) / kSumBlock, groups = (n + kGroup - 1) / kGroup;
  T* sums = call.scratch().take<T>(blocks);
  call.team().parallel_for(groups, kPieceElements / kGroup, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * kGroup; at < std::min(n, end * kGroup);) {
      const bool whole = at % kGroup == 0 && at + kGroup <= n;
      if (whole) run_chains(a + at, b + at, sums + at / kSumBlock);
      else sums[at / kSumBlock] = run_chain(a + at, b + at, std::min(kSumBlock, n - at));
      at += whole ? kGroup : kSumBlock;
    }
  });
  T sum = blocks > 0 ? sums[0] : T{0};
  for (int64_t i = 1; i < blocks; ++i) sum += sums[i];
  visit_floating(out.dtype, [&]<class Out>() { *out.as<Out>() = static_cast<Out>(static_cast<Compute<Out>>(sum)); });
}

template void dot_product(KernelCall&, const float*, const float*, int64_t, const Tensor&);
template void dot_product(KernelCall&, const double*, const double*, int64_t, const Tensor&);

}  // namespace sg::cpu
