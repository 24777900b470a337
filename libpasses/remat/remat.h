// sg-remat: recomputes forward values in the backward instead of keeping them (activation checkpointing).
//
// Policy    what may be recomputed:
//             default  everything except expensive ops and ops that cannot be repeated exactly at low cost: products
//                      and attention (grouped products are recomputed), top-k and sorts, collectives except gathers
//             full     everything except fused attention, whose result is small relative to its cost
//             all      everything
//             tags     whatever the capture's own tags say
//             none     nothing
//           default and full then keep kinds of values (the same place in every layer) where that lowers the peak: a
//           layer needs less at once if part of it is already there. `tag_only` records the rule, before that step.
//           `save` keeps more: PATTERN:OP, PATTERN or op=OP (module pattern; op as libgraph/op_pattern.h), optionally
//           by size (",size>=SIZE", ",size<SIZE"); `recompute`, with the same syntax, keeps less; `save` wins.
// Target    a budget or a peak: recompute as little as meets it (remat_target.h), measured by the planned peak, never
//           by a sum of sizes. Values are chosen by the cost of recomputing them against the bytes that saves.
// Never     data-dependent sizes, nodes with effects, values whose memory is written, the head and the loss
//           (after the last layer, from the first product on: their backward follows immediately; also gathers of
//           parameters that only they read, unless that costs a hundredth of the peak). A value that crosses into a
//           later layer is kept, so that each layer is recomputed independently; if a target needs it, some of these
//           are recomputed too.
// Copies    stand before their first use in the backward, one per node, and are shared; under a target, a copy that
//           would live long until its next use may be recomputed again. They keep the random stream of the original and
//           everything else but the name. An original that only the backward needed is removed. There may be any number
//           of backward regions.
// Legal     what a copy reads must not have been written since its original ran: otherwise the original is kept, and
//           that is reported.
// Ranks     must launch copies of the same collectives in the same order (remat_agreement.h); if they would not, all
//           do as one of them, or else collectives of that group are not recomputed, which is reported.
// Results   bitwise equal. Under a target the peak never exceeds that of the original graph; a policy may raise it,
//           and the summary then says so.
// Limits    main graphs only. In large graphs all layers are thinned by one distance, and the lower bound that guides
//           the search does not consider chains.
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

// At most one of the two is set.
struct RematTarget {
  std::optional<double> budget;  // 0 = the lowest peak found, 1 = that of the original graph
  std::optional<int64_t> peak_bytes;
  bool is_set() const { return budget || peak_bytes; }
};

struct RematOptions {
  RematPolicy policy = RematPolicy::save_costly;
  RematTarget target;
  std::vector<std::string> save, recompute;
  bool tag_only = false;
  // Whether a search may recompute values that cross into a later layer.
  bool has_crossing() const { return target.is_set() && policy != RematPolicy::tags && policy != RematPolicy::none; }
};

Result<Change> remat(Job* job, const RematOptions& options, PassContext& context);

}  // namespace sg
