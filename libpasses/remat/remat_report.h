// Explains the decisions of sg-remat. Internal to it.
#pragma once

#include <string>
#include <vector>

#include "libgraph/job.h"
#include "libpasses/remat/remat_model.h"

namespace sg {

// "alive at once at the lower bound, %f:", then a line each: "%x  512 MiB, an output", "%y  256 MiB, %f reads it".
std::string held_text(const RematModel& model, const RematBound& bound);

// One line for each copy, and for each node that could not be copied. Call it before the outcome is applied.
std::vector<std::string> explain_copies(const RematModel& model, const RematOutcome& outcome);

// A decision about a graph, and its basis.
struct RematDecided {
  const RematDecision& decision;
  const std::vector<uint8_t>& open;    // by position: there was something to decide
  const std::vector<uint8_t>& border;  // by position: kept, because it crosses into a later layer
  uint32_t head = RematModel::kNone;   // position where the head begins
  bool has_target = false;
};

// The forward values that are live at the peak of the recomputed graph, largest first, and why each of them stays.
std::vector<std::string> explain_peak(const RematModel& model, const RematDecided& decided, const Program& program,
                                      const SizeValues& sizes);

}  // namespace sg
