// Communicators that are plugins: shared objects loaded by name, so that nobody needs what they are linked with.
//
// A plugin `libsg_comm_NAME.so` lies in lib/stepgraph beside the bin folder of the program and exports
//     const char* sg_comm_abi();                                          // SG_COMM_ABI of its build
//     sg::Communicator* sg_comm_make(const sg::Job&, double timeout_s, sg::Error&);  // null = the error says why
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "libgraph/job.h"
#include "librun/comm.h"

// Plugin and program share C++ types: they have to come from one build. Raised when comm.h or what it includes changes.
#define SG_COMM_ABI "sg-comm 4 " __VERSION__

namespace sg {

// The communicator of this process's rank: `mpi` starts MPI. The plugin stays loaded. Errors: there is no such plugin,
// it is of another build, or it cannot start. What takes longer than `timeout_s` (0 = may take for ever) to start ends
// the process.
Result<std::unique_ptr<Communicator>> load_communicator(std::string_view name, const Job& job, double timeout_s);

// Those of this process's ranks: all ranks of the job for `local`, else one from the plugin of that name.
Result<std::vector<std::unique_ptr<Communicator>>> make_communicators(std::string_view name, const Job& job,
                                                                      double timeout_s);

}  // namespace sg
