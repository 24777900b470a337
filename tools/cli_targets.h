// Files that a command would write: none may be one that it reads, and no two may be the same.
#pragma once

#include "tools/cli.h"

namespace sg::cli {

// Refuses an output that would replace an input: an operand, a file that a rank pattern or a folder stands for, standard
// input, a file named in an option (a machine, a profile, a plan); through links, too. Nor may standard output be such
// a file: `sg-clean step.sg >> step.sg`. The input itself may be replaced with --in-place. sg-run checks its own
// outputs, whose names have {step} (run_options.cc).
Status check_targets(const Args& args, const std::string& output);

}  // namespace sg::cli
