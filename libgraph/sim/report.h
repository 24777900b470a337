// What sg-sim says: a summary with the critical path for people, JSON for programs, a trace for Perfetto.
#pragma once

#include <string>

#include "libgraph/sim/simulate.h"

namespace sg {

class MeasuredTrace;

std::string print_simulation(const Job& job, const Machine& machine, const Simulation& simulation, size_t rows);

// {"schema":"sg-sim","version":1, ...}: the slowest program at the top, all of them under "ranks". `measured`: null, or
// what the slowest is held against, under "measured".
std::string simulation_json(const Job& job, const Machine& machine, const Simulation& simulation, size_t rows,
                            const MeasuredTrace* measured = nullptr);

// Chrome's trace events: one process a program, a track for compute, the host, each communicator and each copy engine.
// Processes have numbers that no profiler gives, so that its events may be in the same file: those of `beside` (null =
// none), whose first step then begins where the simulated one does.
std::string simulation_trace(const Job& job, const Simulation& simulation, const MeasuredTrace* beside = nullptr);

}  // namespace sg
