#include "librun/cuda/kernels/all.h"
