// Maps nodes of the graph to calls of the communicator: every op of the table with the trait `collective`.
//
//     SG_ASSIGN(std::vector<Launched> launched, launch_collective(comm, call, label));
//     ...                                       // other nodes; wait_tensor of result i, by its storage:
//     SG_TRY(finish_collective(comm, launched[i]));
//
// Strided tensors go through staging memory, which the Launched owns. A wait_tensor for a tensor that was never
// launched, or is already finished, is a no-op, as in PyTorch; so is finishing a Launched twice.
//
// Guarded   (sg-run --chaos) makes reliance on undefined behaviour visible: from launch to wait the result holds
//           meaningless values (NaN, -1, true), while the answer is kept elsewhere; and the wait fails if the input or
//           the result was written in between. So a missing wait shows in the results, regardless of timing.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "libgraph/op.h"
#include "librun/backend.h"
#include "librun/comm/comm.h"
#include "librun/kernel.h"

namespace sg {

// One result of a launched node. Its input and `result` stay alive until it is finished.
struct Launched {
  using Memory = std::unique_ptr<std::byte, MemoryRelease>;

  Ticket ticket;
  Tensor result;  // where the caller wants the result
  Tensor staged;  // where the communicator writes it; none = directly into `result`
  Memory input_memory, output_memory;
  int gathered_axis = -1;  // `staged` holds `parts` of the result, concatenated along this axis
  size_t parts = 1;
  Backend* backend = nullptr;  // owner of all this memory

  bool guarded = false;
  std::string_view label;                  // the node's
  Tensor input;                            // guarded: the caller's input
  uint64_t input_sum = 0, result_sum = 0;  // guarded: checksums of their bytes at launch
};

// Starts the node's collectives, one per result, in order. `label` must outlive the wait. On failure nothing is left
// launched that would need a wait, unless the job has failed as a whole.
Result<std::vector<Launched>> launch_collective(Communicator& comm, const KernelCall& call, std::string_view label,
                                                bool guarded = false);

// Waits for the collective; afterwards `result` holds the answer. Guarded: an error (negative) says what was written
// too early.
Status finish_collective(Communicator& comm, Launched& launched);

}  // namespace sg
