// Runs: 8 contiguous numbers of a row, aligned to 16 bytes, which a lane reads and writes at once.
#pragma once

#include "librun/cuda/kernels/raw.h"

namespace sg::cuda {

inline constexpr int kRun = 8;

template <class Raw>
struct alignas(16) Run {
  Raw x[kRun];
};

template <class Raw>
SG_FN Run<Raw> load_run(const Raw* at) {
  return *reinterpret_cast<const Run<Raw>*>(at);
}
template <class Raw>
SG_FN void store_run(Raw* at, const Run<Raw>& run) {
  *reinterpret_cast<Run<Raw>*>(at) = run;
}

}  // namespace sg::cuda
