// sg-overlap: the pass libpasses/overlap.h as a tool.
#include "libpasses/overlap.h"
#include "tools/cli_pass.h"

int main(int argc, char** argv) { return sg::cli::pass_main<sg::overlap_pass>(argc, argv); }
