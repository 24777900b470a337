// Random changes of a job that a hostile hand might make: a call of any op of the table with any arguments, or an edit
// of one that is there. Types of results are worked out anew, so that what the rules let pass reaches the kernels.
#pragma once

#include <span>

#include "libgraph/job.h"
#include "tests/support/rng.h"

namespace sg::test {

struct EditOptions {
  std::span<const OpInfo* const> ops;  // new calls are of these; empty = of the whole table
  size_t max_nodes = 24;               // of a graph: beyond, nodes are removed instead
};

// One change of one of the job's graphs.
void edit_job(Job& job, Rng& rng, const EditOptions& options = {});

// A call of `op` at the end of the graph, with arguments that its schema allows and its rule takes, out of so many
// attempts; its results are outputs. False when no attempt was taken: the graph has perhaps a few more inputs.
bool add_random_call(Job& job, Program& program, const OpInfo& op, Rng& rng, int attempts);

}  // namespace sg::test
