// Collectives over NCCL, found at run time: one NCCL communicator (nccl_groups.h) and one stream for each group.
//
// Launch and wait never block the host: events order the streams. The host notices failures where it waits for the
// device (Device::synchronize): errors of NCCL, another rank's failure, and a collective that has not come to its end
// in time. The first of them ends all, with the last collectives of this rank in the message.
#pragma once

#include <memory>

#include "librun/backend_plugin.h"
#include "librun/cuda/device.h"

namespace sg::cuda {

// Errors (missing): the library is not there, or too old.
Status require_nccl();

Result<std::unique_ptr<Communicator>> make_nccl_communicator(Device& device, Communicator& host,
                                                             const BackendOptions& options, std::string* explained);

}  // namespace sg::cuda
