// What sg-overlap decides for a whole job: an order for each program, and whether the job is kept so. Internal to the
// pass.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "libpasses/overlap/overlap_measure.h"
#include "libpasses/overlap/overlap_parts.h"

namespace sg::overlap_parts {

// One order a program, and what belongs to it.
struct JobOrder {
  OrderScope scope = OrderScope::job;            // what the steps may count on
  std::vector<std::unique_ptr<Step>> steps;      // by program; model
  std::vector<std::unique_ptr<Precedence>> own;  // by program; reference
  std::vector<Order> by_program;
  std::vector<ReferenceOrder> references;  // by program; reference
  std::vector<DenseMove> dense;            // of the first program
  std::vector<Error> refused;

  const Precedence& precedence(size_t p) const { return steps.empty() ? *own[p] : steps[p]->precedence; }
  const StepCosts* costs(size_t p) const { return steps.empty() ? nullptr : &steps[p]->costs; }
};

// What becomes of the job.
struct Verdict {
  Figures before, after;
  bool measured = false;
  bool kept = false;
  std::string why;  // not kept
};

// A copy of the job in these orders. An Error is a bug of ours: an order that breaks a rule.
Result<Job> reordered(const Job& job, const JobOrder& orders);

// Strategy reference: the order that it prescribes, with what belongs to it. Without a measure, `out` has no figures.
Status run_reference(Job* job, const OverlapOptions& options, PassContext& context, const Measure* measure,
                     JobOrder* orders, Verdict* out);

// Strategy model: the best orders that were found; the job stays as it is where they are no gain. `isolated`: its
// traffic has moved to communicators of its own, which may be a gain without any other order.
Status run_model(Job* job, bool isolated, const OverlapOptions& options, PassContext& context, const Measure& measure,
                 JobOrder* orders, Verdict* out);

// --- what is said ---

size_t moved_nodes(const JobOrder& orders);  // of the program that has most
size_t regions_of(const JobOrder& orders);   // strategy reference: chunked regions that have an order
std::string summary_of(const OverlapOptions& options, const JobOrder& orders, const Verdict& out, size_t moved);
// Adds the plan of --explain.
void explain_change(const Job& before, const Job& after, const OverlapOptions& options, const JobOrder& orders,
                    const Verdict& out, Change* change);

}  // namespace sg::overlap_parts
