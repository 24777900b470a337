// sg-concretize: the pass libpasses/concretize.h as a tool.
#include "libpasses/concretize.h"
#include "tools/cli/cli_pass.h"

int main(int argc, char** argv) { return sg::cli::pass_main<sg::concretize_pass>(argc, argv); }
