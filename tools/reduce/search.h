// Search: the smallest job that it can find for which a question is still answered with yes.
//
// Order     Half of the ranks are taken away, as long as that goes. Half of all nodes, then quarters, down to single
//           ones, from the end of the schedule; outputs, guards and symbols: first on all ranks together, then on each.
//           Then ranks, down to single ones, and what nodes say about themselves; again, until nothing more can go.
// Together  All ends of a collective go at once (libgraph/edit/shrink.h).
// Rounds    Up to `threads` candidates are asked about at once; of those with a yes the first counts, so that the same
//           number of threads gives the same job.
// Verified  A candidate that the verifier refuses is not asked about.
#pragma once

#include <functional>
#include <string>

#include "libgraph/job.h"
#include "tools/reduce/probe.h"

namespace sg::reduce {

struct SearchOptions {
  size_t threads = 1;
  bool keep_metadata = false;                                   // what nodes say about themselves stays
  bool keep_ranks = false;                                      // the world stays as large as it is
  std::function<Result<Answer>(const Job&, size_t slot)> ask;   // slot < threads: which of those that run at once
  std::function<void(const Job& best, size_t asked)> progress;  // after each job that is smaller
};

struct Found {
  Job job;
  size_t asked = 0, invalid = 0, skipped = 0;
  bool complete = true;  // false: stopped before the end
};

Result<Found> shrink(Job job, const SearchOptions& options);

}  // namespace sg::reduce
