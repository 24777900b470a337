// sg-overlap: the pass libpasses/overlap/overlap.h as a tool.
#include "libpasses/overlap/overlap.h"
#include "tools/cli/cli_pass.h"

int main(int argc, char** argv) { return sg::cli::pass_main<sg::overlap_pass>(argc, argv); }
