// sg-remat: the pass libpasses/remat/remat.h as a tool.
#include "libpasses/remat/remat.h"
#include "tools/cli/cli_pass.h"

int main(int argc, char** argv) { return sg::cli::pass_main<sg::remat_pass>(argc, argv); }
