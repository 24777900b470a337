// Transfers: copies of a tensor to the host's memory and back. One node starts the copy, a wait completes it.
//
//     %host = sg.offload(%x)            starts; %host lies in host memory
//     %kept = sg.wait(%host)            from here on %host may be read, and %x is free
//     %back = sg.reload(%kept, device=cuda:0)
//     %y    = sg.wait(%back)
//
// As with a collective, what is read and what is written is in use from the start to the wait (alias.h, liveness.h),
// and nobody reads the result before it (verify_effects.cc). PyTorch's own ops (`ao.offload`, `ao.reload`,
// `ao.wait_tensor`) mean the same.
//
// Memory    Results of a transfer to the host, and views of them, lie in an arena of its own (plan.h), whatever device
//           their type names: so on CPU ranks, where both devices are "cpu", the device's memory falls as it would on a
//           GPU.
#pragma once

#include <cstdint>

#include "libgraph/op.h"

namespace sg {

enum class Transfer : uint8_t { none, to_host, to_device };

// Of an op; null = not in the table.
Transfer transfer_of(const OpInfo* op);

inline bool starts_transfer(const OpInfo* op) { return transfer_of(op) != Transfer::none; }

}  // namespace sg
