// The compiled kernels: machine code for sm_90 and PTX, which newer devices compile themselves.
#pragma once

namespace sg::cuda {

const void* kernel_image();

}  // namespace sg::cuda
