// What --inputs gives to the ranks of a job, before it runs.
#pragma once

#include "libgraph/job.h"
#include "tools/cli/cli.h"

namespace sg::cli {

// Warns, once, where one file without {r} gives all ranks the values of inputs of which each rank holds another shard.
void warn_of_one_shard(const Args& args, const Job& job);

}  // namespace sg::cli
