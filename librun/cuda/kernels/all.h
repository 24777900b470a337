// Every kernel: what is compiled for the device (all.cu), and for the processor in tests/gpu.
#pragma once

#include "librun/cuda/kernels/channel.h"
#include "librun/cuda/kernels/copy.h"
#include "librun/cuda/kernels/flash.h"
#include "librun/cuda/kernels/index.h"
#include "librun/cuda/kernels/loss.h"
#include "librun/cuda/kernels/matmul.h"
#include "librun/cuda/kernels/norms.h"
#include "librun/cuda/kernels/order.h"
#include "librun/cuda/kernels/parts.h"
#include "librun/cuda/kernels/pointwise.h"
#include "librun/cuda/kernels/random.h"
#include "librun/cuda/kernels/reduce.h"
#include "librun/cuda/kernels/scan.h"
#include "librun/cuda/kernels/slots.h"
#include "librun/cuda/kernels/sort.h"
#include "librun/cuda/kernels/works.h"
