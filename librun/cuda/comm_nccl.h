// Collectives over NCCL, loaded at run time: one NCCL communicator (nccl_groups.h) and one stream for each group.
//
// Launch and wait never block the host: events order the streams. The host notices failures when it waits for the
// device (Device::synchronize): NCCL errors, another rank's failure, and a collective that does not finish in time. The
// first of them ends everything, and its message lists this rank's last collectives.
#pragma once

#include <memory>

#include "librun/backend_plugin.h"
#include "librun/cuda/device.h"

namespace sg::cuda {

// Errors (missing): the library is missing or too old.
Status require_nccl();

Result<std::unique_ptr<Communicator>> make_nccl_communicator(Device& device, Communicator& host,
                                                             const BackendOptions& options, std::string* explained);

}  // namespace sg::cuda
