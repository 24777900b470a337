// Communicators as plugins: shared objects loaded by name, so that the program does not depend on the libraries they
// need.
//
// A plugin `libsg_comm_NAME.so` is in lib/stepgraph next to the bin folder of the program and exports
//     const char* sg_comm_abi();                                          // SG_COMM_ABI of its build
//     sg::Communicator* sg_comm_make(const sg::Job&, double timeout_s, sg::Error&);  // null = the error says why
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "libgraph/job.h"
#include "librun/comm/comm.h"

// Plugin and program share C++ types, so they must come from one build. Incremented when comm.h or anything it includes
// changes.
#define SG_COMM_ABI "sg-comm 5 " __VERSION__

namespace sg {

// The communicator of this process's rank: `mpi` starts MPI. The plugin stays loaded. Errors: no such plugin, a plugin
// of a different build, or a failed start. A start that takes longer than `timeout_s` (0 = unlimited) ends the process.
Result<std::unique_ptr<Communicator>> load_communicator(std::string_view name, const Job& job, double timeout_s);

// The communicators of this process's ranks: all ranks of the job for `local`, else one from the plugin of that name.
Result<std::vector<std::unique_ptr<Communicator>>> make_communicators(std::string_view name, const Job& job,
                                                                      double timeout_s);

}  // namespace sg
