// sg-clean: the pass libpasses/clean/clean.h as a tool.
#include "libpasses/clean/clean.h"
#include "tools/cli/cli_pass.h"

int main(int argc, char** argv) { return sg::cli::pass_main<sg::clean_pass>(argc, argv); }
