// sg-print --node: one node with its users.
#pragma once

#include <string>

#include "libgraph/job.h"

namespace sg::cli {

// The node of that name (with or without %) and those that use its results, in every graph of the job that has it.
Result<std::string> node_report(const Job& job, std::string name);

}  // namespace sg::cli
