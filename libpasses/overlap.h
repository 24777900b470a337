// sg-overlap --isolate-only: token exchanges get communicators of their own.
//
// Why       Collectives on one communicator run one after the other. An exchange on the group that also gathers parameters waits behind
//           gathers that were launched ahead of it.
// Exchanges every all_to_all, in nested bodies too. Where their group family carries other traffic as well, they move to a new family of the
//           same axis and ranks, with the next ordinal and a priority one above. A family that carries exchanges only is
//           left as it is, whatever ranks it has.
// Gathers   with `gathers`, gathers of parameters move likewise (with the priority they had): then they and the reductions of
//           gradients may run at once in the backward. Gathers of anything else stay.
// Declared  in the file: nothing is created on the side. The new family has no alias: no producer knows it.
// Ranks     One decision for the job: a family is split where any of its programs needs it.
// Again     a second run finds nothing to do.
// Results   bitwise equal: the same collectives over the same ranks.
// Stored    the roles of collectives (libgraph/collective_roles.h) in the nodes' metadata.
#pragma once

#include "libpasses/pass.h"

namespace sg {

extern const PassInfo overlap_pass;

struct IsolateOptions {
  bool gathers = false;
};

Result<Change> isolate(Job* job, const IsolateOptions& options, PassContext& context);

}  // namespace sg
