// What a job takes on a machine, in one order or another, and how much memory it may take. Internal to sg-overlap.
#pragma once

#include <algorithm>
#include <vector>

#include "libgraph/expr/assume.h"
#include "libgraph/plan/plan.h"
#include "libgraph/sim/simulate.h"
#include "libpasses/overlap/overlap.h"

namespace sg::overlap_parts {

// What a job takes on a machine. Sizes that only the data decides are as sg-sim assumes them.
struct Figures {
  double makespan_us = 0;
  int64_t peak_bytes = 0;    // planned, of the worst program
  int64_t hinted_bytes = 0;  // the same without what only the data decides: what sg-run plans
};

// The job at hand on the machine of the options.
class Measure {
 public:
  static Result<Measure> make(const Job& job, const OverlapOptions& options) {
    Measure out;
    SG_ASSIGN(out.options_.machine, find_machine(options.machine));
    out.options_.events = false;
    SG_ASSIGN(out.values_, assume_values(job, infer_ranges(job), options.assume));
    return out;
  }

  const SimOptions& options() const { return options_; }
  const SymbolValues& values(size_t program) const { return values_[program]; }

  Result<Figures> figures(const Job& job) const {
    Figures out;
    SG_ASSIGN(const Simulation simulation, simulate(job, values_, options_));
    out.makespan_us = simulation.worst().makespan_us;
    for (size_t p = 0; p < job.programs.size(); ++p) {
      const Program& program = *job.programs[p];
      const int64_t assumed = planned(program, [&](StrId s) { return values_[p].value(s); });
      out.peak_bytes = std::max(out.peak_bytes, assumed);
      const SizeValues hints = [&](StrId s) -> std::optional<int64_t> {
        const Symbol* symbol = program.find_symbol(s);
        return symbol ? symbol->hint : std::nullopt;
      };
      out.hinted_bytes = std::max(out.hinted_bytes, program.symbols.empty() ? assumed : planned(program, hints));
    }
    return out;
  }

 private:
  static int64_t planned(const Program& program, const SizeValues& values) {
    return plan_memory(compute_liveness(program, program.graph, values)).arena_bytes;
  }

  SimOptions options_;
  std::vector<SymbolValues> values_;
};

// How much memory an order may plan for: --peak, or as much as before. A job that is above it already may stay there.
class PeakLimit {
 public:
  PeakLimit(int64_t asked_bytes, const Figures& before)
      : bytes_(asked_bytes != 0 ? asked_bytes : before.peak_bytes), before_(before) {}

  int64_t bytes() const { return bytes_; }
  int64_t bytes_over(const Figures& now) const {
    return std::max(now.peak_bytes - std::max(bytes_, before_.peak_bytes > bytes_ ? before_.peak_bytes : 0),
                    now.hinted_bytes - std::max(bytes_, before_.hinted_bytes));
  }
  // Shorter; or as long, and within the limit for the first time.
  bool is_gain(const Figures& now) const {
    const bool reaches = before_.peak_bytes > bytes_ && now.peak_bytes <= bytes_;
    return now.makespan_us < before_.makespan_us || (now.makespan_us == before_.makespan_us && reaches);
  }

  // Of two that are a gain.
  bool is_better(const Figures& a, const Figures& b) const {
    const bool a_fits = a.peak_bytes <= bytes_, b_fits = b.peak_bytes <= bytes_;
    return a_fits != b_fits ? a_fits : a.makespan_us < b.makespan_us;
  }

 private:
  int64_t bytes_;
  const Figures& before_;
};

}  // namespace sg::overlap_parts
