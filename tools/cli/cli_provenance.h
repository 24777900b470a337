// What a job says of where it came from.
#pragma once

#include <string>
#include <vector>

#include "libgraph/job.h"
#include "tools/cli/cli.h"

namespace sg::cli {

// Appends the tool, its options and the digest of its input to the job's provenance.
void add_provenance(const Args& args, const std::vector<std::string>& options, const std::string& digest, Job* job);

}  // namespace sg::cli
