// Aligns matrix rows of a job that runs on a device. Its products read 16 bytes of a row at once if all rows begin at
// multiples of that, and are several times slower otherwise: a vocabulary of 50257 in bf16 is such a case.
//
// Changed  row strides of half-precision matrices that a product or a loss produces, and of their transposes, if only
//          products and losses (sg.cross_entropy) use them: those accept any strides. Only rows of 4096 or more
//          elements are padded, so that memory grows by at most 1.6 %. Values stay the same.
// Kept     inputs and outputs, and everything that is viewed in other ways: run sg-clean first.
#pragma once

#include <memory>

#include "libgraph/job.h"

namespace sg {

// The job with aligned rows, all ids unchanged; null if nothing changes.
std::unique_ptr<Job> with_even_rows(const Job& job);

}  // namespace sg
