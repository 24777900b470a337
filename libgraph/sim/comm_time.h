// How long a collective takes, by kind, size and where its ranks are.
//
// Two protocols, the faster one counts:
//   low latency   PyTorch's model of NCCL's rings with the LL protocol
//                 (torch/_inductor/comm_analysis.py), whose constants the machine holds: right for small
//                 messages, slow for large ones
//   simple        a ring that reaches the machine's bandwidth for large messages, behind a longer start
// An all_to_all is direct where the machine says what a rank's links carry; else it goes round the ring as well. A
// broadcast goes round the ring in pieces: as long as one link takes for all of it. What goes from one rank to one
// other is, in PyTorch's model, a ring of two.
// Sizes     of the whole: what an all_gather gives to each rank, what a reduce_scatter or all_reduce takes from each,
//           what a rank of an all_to_all sends or receives, whichever is more. PyTorch's estimate adds what comes out
//           to that; its formula alone is `ll_time_us`.
#pragma once

#include <cstdint>
#include <string_view>

#include "libgraph/sim/machine.h"

namespace sg {

enum class CollectivePattern : uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  broadcast,
  point_to_point
};
CollectivePattern collective_kind(
    std::string_view kind);  // Communication::kind; what is not named above is point to point

// Of `ranks` ranks on `nodes` hosts. 0 for a group of one.
double collective_time_us(const Machine::Network& network, CollectivePattern kind, double bytes, double ranks,
                          double nodes);
double ll_time_us(const Machine::Network& network, CollectivePattern kind, double bytes, double ranks, double nodes);

}  // namespace sg
