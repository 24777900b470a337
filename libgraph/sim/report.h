// What sg-sim says: a summary with the critical path for people, JSON for programs, a trace for Perfetto.
#pragma once

#include <string>

#include "libgraph/sim/simulate.h"

namespace sg {

std::string print_simulation(const Job& job, const Machine& machine, const Simulation& simulation, size_t rows);

// {"schema":"sg-sim","version":1, ...}: the slowest program at the top, all of them under "ranks".
std::string simulation_json(const Job& job, const Machine& machine, const Simulation& simulation, size_t rows);

// Chrome's trace events: one process a program, a track for compute, the host, each communicator and each copy engine.
std::string simulation_trace(const Job& job, const Simulation& simulation);

}  // namespace sg
