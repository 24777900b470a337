// sg-offload: forward values are kept in host memory until the backward needs them, so their device memory is free in
// between.
//
//     %host = sg.offload(%x)            after the node that makes %x: the copy begins
//     %kept = sg.wait(%host)            after the last forward use of %x, or `defer` layers after %x: it is gone here
//     %back = sg.reload(%kept, ...)     `prefetch` layers of the backward before its first use: the copy back begins
//     %x_2  = sg.wait(%back)            before that use
//
// May go    what the forward makes and the backward reads again: dense tensors of at least `least_bytes`, with their
//           own memory that no input or output shares and that is not written once the copy has begun. Views of it that
//           the backward uses are recreated from the reloaded value. Data-dependent sizes stay, and so do
//           gathered values: those can be gathered again (sg-remat).
// Chosen    while it lowers the planned peak of the device: at the highest point, the largest value that could be off
//           the device there, until the budget is spent or the peak consists of other things; values that gained
//           nothing stay. `all`: then the rest, largest first.
// Budget    total host memory as planned, including what earlier runs have put there; so a second run changes nothing.
// Distance  in layers (layers.h), as they follow each other in the forward and in the backward; or in time, by
//           simulating the step on a machine (sg-sim): what a copy takes on the link to the host, and those that
//           queue before it; where distances in layers make a shorter step of no higher peak, those. If the gap is too
//           short for it, or a value would be back at the peak, it is shortened.
// Tags      that have not been applied yet (sg-remat --tag-only): the peak that counts is that of the step once they
//           are; inputs of the recomputation may go, and recomputed values stay.
// Ranks     decide for themselves: nothing is sent.
// Results   bitwise equal. The lower bound of the device's memory never grows; a plan that grows all the same is not
//           used.
// Limits    main graphs only; values of data-dependent size stay on the device. With distances in time, a
//           link that cannot keep up is reported, but does not change which values are moved.
// Tests     golden/offload, passes/run_passes.py, unit/offload_test.cc.
#pragma once

#include <optional>
#include <string>

#include "libpasses/pass.h"

namespace sg {

extern const PassInfo offload_pass;

struct OffloadOptions {
  std::optional<int64_t> budget_bytes;  // none = no limit
  int64_t prefetch = 1, defer = 1;      // layers; not asked with a machine
  std::string machine;                  // whose copies make the distances; empty = layers
  int64_t least_bytes = 4096;           // smaller values stay: a copy costs more than a few pages are worth
  bool all = false;
};

Result<Change> offload(Job* job, const OffloadOptions& options, PassContext& context);

}  // namespace sg
