#include "libpasses/planned_peak.h"

#include <algorithm>

#include "libgraph/expr/assume.h"
#include "libgraph/plan/plan.h"

namespace sg {

int64_t planned_peak(const Program& program, const SizeValues& sizes) {
  return plan_memory(compute_liveness(program, program.graph, sizes)).arena_bytes;
}

int64_t planned_peak(const Job& job) {
  const std::vector<SymbolValues> values = usual_values(job);
  int64_t most = 0;
  for (size_t i = 0; i < job.programs.size(); ++i)
    most = std::max(most, planned_peak(*job.programs[i], [&](StrId symbol) { return values[i].value(symbol); }));
  return most;
}

}  // namespace sg
