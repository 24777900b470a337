// Collectives of device tensors through memory of the host and a communicator of the host: any number of ranks on one
// GPU, and the bits of that communicator. A launch waits for what its input needs; the wait brings the result.
#pragma once

#include <memory>

#include "librun/backend.h"

namespace sg::cuda {

std::unique_ptr<Communicator> make_host_communicator(Backend& backend, Communicator& host);

}  // namespace sg::cuda
