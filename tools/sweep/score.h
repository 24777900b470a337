// How a graph is scored: the time of a step, and the peak of its memory.
//
// simulate   as sg-sim and sg-stat say: the simulated step on a machine, the planned peak of the largest rank; sizes of
//            the data as these assume them. What cannot be counted is an error, not a guess.
// run        sg-run with the options given: the median of its steps, the first left out when there are more; what the
//            largest rank allocates beyond its inputs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/result.h"
#include "libgraph/sim/machine.h"

namespace sg::sweep {

struct Score {
  double step_seconds = 0, peak_bytes = 0;
};

struct Scoring {
  bool runs = false;
  Machine machine;                     // of simulations
  std::string recipe_machine;          // as the recipe names it; empty: it does not, or is not asked
  std::vector<std::string> run_words;  // of sg-run

  // What a score depends on, besides the graph.
  Result<std::string> key() const;
};

Result<Score> score_of(const Scoring& scoring, std::string_view sealed, const std::string& name);

}  // namespace sg::sweep
