// Even rows of a job that runs on a device. Its products read 16 bytes of a row at once if all rows begin at multiples
// of that, and are several times as slow else: a vocabulary of 50257 in bf16 is such a case.
//
// Changed  the steps between rows of matrices in halves that a product or a loss makes, and of their transposes, where
//          products and losses (sg.cross_entropy) alone see them: what any steps do for. Rows have 4096 numbers or more,
//          so that memory grows by 1.6 % of them at most. Numbers stay the same.
// Kept     inputs and outputs, and all that a view shows otherwise: run sg-clean first.
#pragma once

#include <memory>

#include "libgraph/job.h"

namespace sg {

// The job with its rows made even, every id the same; null where nothing changes.
std::unique_ptr<Job> with_even_rows(const Job& job);

}  // namespace sg
