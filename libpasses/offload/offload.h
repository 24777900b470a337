// sg-offload: values of the forward wait for the backward in the host's memory, and their place on the device is free
// meanwhile.
//
//     %host = sg.offload(%x)            behind what makes %x: the copy begins
//     %kept = sg.wait(%host)            behind the last forward use of %x, or `defer` layers after %x: it is gone here
//     %back = sg.reload(%kept, ...)     `prefetch` layers of the backward before its first use: the copy back begins
//     %x_2  = sg.wait(%back)            before that use
//
// May go    what the forward makes and the backward reads again: dense tensors of at least `least_bytes`, with memory
//           of their own that no input or output shares and nobody writes to once the copy has begun. Views of it that
//           the backward uses are taken again of what came back. Sizes that only the data decides stay, and so do
//           gathered values: gathering again (sg-remat) is for them.
// Chosen    while it lowers the planned peak of the device: at the highest point, the largest value that is off the
//           device there, until the budget is spent or the peak is made of other things; what won nothing stays. `all`:
//           then the rest, largest first.
// Budget    of host memory in all, what earlier runs have put there included; so a second run changes nothing.
// Distance  in layers (layers.h), as they follow each other in the forward and in the backward; or in time, by the
//           simulation of the step on a machine (sg-sim): what a copy takes on the link to the host, and those that
//           queue before it. Where the way is too short for it, or a value would be back at the peak, it is shortened.
// Tags      that nobody has applied yet (sg-remat --tag-only): the peak that counts is that of the step once they are;
//           what recomputation begins with may go, and what is recomputed stays.
// Ranks     decide for themselves: nothing is sent.
// Results   bitwise equal. The lower bound of the device's memory never grows; a plan that grows all the same is not
//           taken.
// Limits    main graphs only; values of a size that only the data decides stay on the device. With distances in time, a
//           link that cannot keep up is said, and what to move is not chosen by it.
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
