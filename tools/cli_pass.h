// A pass as a tool: its row of passes.def becomes options, help, run and messages. The tool's file is three lines.
#pragma once

#include "libpasses/pass.h"
#include "tools/cli.h"

namespace sg::cli {

// The whole life of sg-NAME.
int pass_main(const PassInfo& pass, int argc, char** argv);

}  // namespace sg::cli
