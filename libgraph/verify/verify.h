// The verifier: one small named rule per property that every job must have. `sg-check` prints what it finds; every
// other tool refuses a job with findings (exit 3).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "libgraph/base/diag.h"
#include "libgraph/job.h"

namespace sg {

struct VerifyOptions {
  bool types = true;   // hold recorded types against inferred ones (the slowest rule)
  bool ranks = true;   // hold ranks against each other: collective order, shapes, groups
  size_t threads = 1;  // programs are held against their rules on several; the findings are those of one
  // Limits on the work of the rules across ranks, not on jobs: nested calls can multiply, and so can ranks. A job that
  // meets one is warned about: what lies beyond was not looked at.
  size_t max_rank_events = 8'000'000;    // launches and waits, of all programs, and of all ranks together
  size_t max_split_checks = 20'000'000;  // pairs of split sizes
};

struct VerifyRule {
  std::string_view name;     // "order", "alias-root", "collective-order"
  std::string_view promise;  // one sentence: what holds when the rule passes
};

// Every rule by name, in the order in which they run.
std::span<const VerifyRule> verify_rules();

// Adds a diagnostic a finding; adds nothing when the job is valid.
void verify(const Job& job, const VerifyOptions& options, Diagnostics* findings);

}  // namespace sg
