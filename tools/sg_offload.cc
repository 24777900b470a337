// sg-offload: the pass libpasses/offload/offload.h as a tool.
#include "libpasses/offload/offload.h"
#include "tools/cli/cli_pass.h"

int main(int argc, char** argv) { return sg::cli::pass_main<sg::offload_pass>(argc, argv); }
