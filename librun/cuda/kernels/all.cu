// The one file that is compiled for the device: every kernel, in one fatbin.
#include "librun/cuda/kernels/all.h"
