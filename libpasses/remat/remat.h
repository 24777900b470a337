// sg-remat: forward values are computed again in the backward instead of being kept (activation checkpointing).
//
// Policy    what may be recomputed:
//             default  all but what is dear or not exactly repeatable cheaply: products and attention (grouped
//                      products are recomputed), top-k and sorts, every collective except gathers
//             full     everything but attention in one op, which gives little for what it costs
//             all      everything
//             tags     what the capture's own tags say
//             none     nothing
//           default and full then keep kinds of values (the same place in every layer) where that lowers the peak: what
//           a layer needs at once is less when some of it is there. `tag_only` writes the rule, before that. `save`
//           keeps more: PATTERN:OP, PATTERN or op=OP (module pattern; op with or without overload), by size or not
//           (",size>=SIZE", ",size<SIZE"); `recompute` in the same words keeps less, and gives way to `save`.
// Target    a budget or a peak: as little of that as meets it (remat_target.h); the planned peak counts, and never a
//           sum of sizes. What is computed twice is chosen by what that costs for the bytes that it spares.
// Never     sizes that the data decides, nodes with effects, values whose memory is written, the head and the loss
//           (behind the last layer, from the first product on: their backward comes at once; gathers of parameters
//           that they alone read too, but where that costs a hundredth of the peak). A value that crosses into a later
//           layer is kept, so that each layer is recomputed by itself; under a target, where that is too much,
//           some of them are not.
// Copies    stand before their first use in the backward, one a node, and are shared; under a target, a copy that would
//           wait long for its next use may be made once more. They keep the random stream of what they copy, and
//           everything else but the name. An original that only the backward needed is gone. Any number of backward
//           regions.
// Legal     what a copy reads must not have been written since its original ran: else the original is kept, and said.
// Ranks     launch copies of the same collectives in the same order (remat_agreement.h); where they would not, those of
//           the group are not recomputed, which is said.
// Results   bitwise equal. Under a target the peak is never above that of the graph as it was; a policy may raise it,
//           and then the summary says so.
// Limits    main graphs only. Large graphs: all layers are thinned by one distance, and the lower bound that the search
//           goes by knows nothing of chains.
// Tests     golden/remat, passes/run_passes.py and run_peaks.py, unit/remat_test.cc (against all choices in small
//           graphs).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libpasses/pass.h"

namespace sg {

extern const PassInfo remat_pass;

enum class RematPolicy : uint8_t { save_costly, full, all, tags, none };

// At most one of the two.
struct RematTarget {
  std::optional<double> budget;  // 0 = the lowest peak that is found, 1 = that of the graph as it is
  std::optional<int64_t> peak_bytes;
  bool is_set() const { return budget || peak_bytes; }
};

struct RematOptions {
  RematPolicy policy = RematPolicy::save_costly;
  RematTarget target;
  std::vector<std::string> save, recompute;
  bool tag_only = false;
  // Whether a search may recompute what crosses into a later layer.
  bool has_crossing() const { return target.is_set() && policy != RematPolicy::tags && policy != RematPolicy::none; }
};

Result<Change> remat(Job* job, const RematOptions& options, PassContext& context);

}  // namespace sg
