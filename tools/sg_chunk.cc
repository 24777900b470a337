// sg-chunk: the pass libpasses/chunk/chunk.h as a tool.
#include "libpasses/chunk/chunk.h"
#include "tools/cli/cli_pass.h"

int main(int argc, char** argv) { return sg::cli::pass_main<sg::chunk_pass>(argc, argv); }
