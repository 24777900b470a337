// Measured: what a profile says a step takes, by kinds of op, to be held against a simulation.
//
// Sources   `sg-run --profile`, and the profiler of PyTorch (Kineto, a Chrome trace): its kernels, each of the kind of
//           the aten op that launched it; where there are no kernels, the CPU's ops, each without what it calls.
// A step    All times are of one step: of what the trace holds, divided by its steps (ProfilerStep#N; one when there
//           are no marks) and averaged over the ranks, or devices, in it. `step_us` is that of the slowest of them.
// Exposed   of a collective or a copy to the host: sg-run's waits, and what the processor copies itself; for PyTorch
//           the part of its kernels during which no compute kernel of the device runs. NCCL's kernels run while they
//           wait for other ranks, which counts as under way.
// Unknown   What belongs to no kind (fused kernels, Python's own marks, views) is kept by name.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "libgraph/base/json.h"
#include "libgraph/sim/simulate.h"

namespace sg {

class CaptureText;

struct MeasuredStep {
  std::string source;  // "sg-run" or "PyTorch"
  size_t steps = 1, ranks = 1;
  double step_us = 0;
  double begin_us = 0;  // of the first step, on the trace's clock
  struct Part {
    double us = 0, count = 0;
  };
  std::map<std::string, Part, std::less<>> compute;             // by the name of the OpKind
  std::map<std::string, Part, std::less<>> under_way, exposed;  // by kind of collective
  std::map<std::string, double, std::less<>> unknown_us;        // by name
  std::set<std::string, std::less<>> nodes;                     // of sg-run: the graph's
};

class MeasuredTrace {
 public:
  // `file` names it in messages; gzip is unpacked. Errors: no JSON, no trace, or one of neither source.
  static Result<MeasuredTrace> read(const std::string& file, std::string bytes);
  ~MeasuredTrace();
  MeasuredTrace(MeasuredTrace&&) noexcept;
  MeasuredTrace& operator=(MeasuredTrace&&) noexcept;

  const MeasuredStep& step() const { return step_; }
  void write_events(JsonWriter* json) const;  // all of the file's, as values of an open array

 private:
  MeasuredTrace();
  std::unique_ptr<CaptureText> text_;
  MeasuredStep step_;
};

struct Residual {
  std::string what;  // "compute", "exposed" or "under way"
  std::string kind;
  double measured_us = 0, simulated_us = 0;
  double count = 0;  // as measured
};
// Kinds that either side has; the longest measured first within compute, exposed and under way.
std::vector<Residual> residuals(const MeasuredStep& measured, const ProgramTimeline& simulated);
std::string print_residuals(const MeasuredStep& measured, const ProgramTimeline& simulated);
// {"source","steps","ranks","step_us","unknown_us":{name},
//  "residuals":[{"what","kind","measured_us","simulated_us","count"}]}
void write_residuals(JsonWriter* json, const MeasuredStep& measured, const ProgramTimeline& simulated);

// The machine with efficiencies, and speeds of collectives, at which the simulated times are the measured ones as
// nearly as they can be. Kinds that the trace lacks stay as they are. `simulate`: the step, with its events.
using SimulateOn = std::function<Result<ProgramTimeline>(const Machine&)>;
Result<Machine> fit_machine(const Machine& start, const MeasuredStep& measured, const SimulateOn& simulate);

}  // namespace sg
