// Collectives of device tensors through host memory and a host communicator: any number of ranks on one GPU, with the
// bits of that communicator. A launch waits for its input to be computed; the wait copies the result back.
#pragma once

#include <memory>

#include "librun/backend.h"

namespace sg::cuda {

std::unique_ptr<Communicator> make_host_communicator(Backend& backend, Communicator& host);

}  // namespace sg::cuda
