// Loops compiled for several instruction sets, the best of which is selected at run time.
//
//     SG_CLONES void scale(float* x, int64_t n, float by) { for (int64_t i = 0; i < n; ++i) x[i] *= by; }
//
// Functions called by such a loop must be inlined into it (SG_INLINE), otherwise they run as compiled for the oldest
// CPU. The bits are the same on all of them: nothing is contracted (-ffp-contract=off), and reductions must use
// explicit lanes.
#pragma once

#include "librun/work/inline.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define SG_CLONES [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define SG_CLONES
#endif
