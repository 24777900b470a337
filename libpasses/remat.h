// sg-remat: forward values are computed again in the backward instead of being kept (activation checkpointing).
//
// Policy    what may be recomputed:
//             default  all but what is dear or not exactly repeatable cheaply: products and attention (grouped products are
//                      recomputed), top-k and sorts, every collective except gathers
//             full     everything
//             tags     what the capture's own tags say
//             none     nothing
//           `save` keeps more: PATTERN:OP, PATTERN or :OP (module pattern; op with or without overload, * = any text).
// Never     sizes that the data decides, nodes with effects, values whose memory is written, the head and the loss (behind the
//           last layer, from the first product on: their backward comes at once). A value that crosses into a later layer is kept, so that each
//           layer is recomputed by itself.
// Copies    stand before their first use in the backward, one a node, and are shared; they keep the random stream of what
//           they copy, and everything else but the name. An original that only the backward needed is gone.
// Memory    what a copy reads must not have been written since its original ran: else the original is kept, and said.
// Ranks     recompute the same collectives, or none.
// Results   bitwise equal.
#pragma once

#include <string>
#include <vector>

#include "libpasses/pass.h"

namespace sg {

extern const PassInfo remat_pass;

enum class RematPolicy : uint8_t { save_costly, full, tags, none };

struct RematOptions {
  RematPolicy policy = RematPolicy::save_costly;
  std::vector<std::string> save;
  bool tag_only = false;
};

Result<Change> remat(Job* job, const RematOptions& options, PassContext& context);

}  // namespace sg
