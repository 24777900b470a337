// Completions of the whole suite: the shells' scripts, and what may follow `stepgraph COMMAND`.
#pragma once

#include "tools/cli/cli.h"
#include "tools/cli/cli_complete.h"

namespace sg::cli {

// `stepgraph completions SHELL`: the script for it and for every tool that is there.
Result<int> print_completions(const Args& args);

// What stands behind a command is completed by its tool.
void complete_suite(const ValueRequest& request);

}  // namespace sg::cli
