// sg-bucket: the pass libpasses/bucket/bucket.h as a tool.
#include "libpasses/bucket/bucket.h"
#include "tools/cli/cli_pass.h"

int main(int argc, char** argv) { return sg::cli::pass_main<sg::bucket_pass>(argc, argv); }
