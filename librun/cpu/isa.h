// Loops compiled for several instruction sets, the best one being taken at run time.
//
//     SG_CLONES void scale(float* x, int64_t n, float by) { for (int64_t i = 0; i < n; ++i) x[i] *= by; }
//
// What such a loop calls must be inlined into it (SG_INLINE), or it runs as compiled for the oldest processor. The bits
// are the same on all of them: nothing is contracted (-ffp-contract=off), and reductions must have lanes of their own.
#pragma once

#include "librun/work/inline.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define SG_CLONES [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define SG_CLONES
#endif
