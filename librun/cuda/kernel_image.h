// The compiled kernels: machine code for sm_90, and PTX for the driver of any other device to compile.
#pragma once

namespace sg::cuda {

inline constexpr int kOldestArchitecture = 80;  // of that PTX (CMakeLists.txt): supports bf16 products by tiles

const void* kernel_image();

}  // namespace sg::cuda
