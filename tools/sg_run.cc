// sg-run: execute a step on its ranks.
#include "tools/run/run_command.h"
#include "tools/run/run_options.h"

using namespace sg;
using namespace sg::cli;

namespace {

const Tool kTool = {
    .name = "sg-run",
    .summary = "execute a step on its ranks",
    .operands = "[GRAPH]",
    .details = "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.",
    .options = run_options(),
    .examples = {{"sg-run step.sg --init seed:0 --steps 3", "run it on made-up weights and inputs"},
                 {"sg-run step.sg --plan", "how much memory it needs, and for what"}},
    .run = run_step,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
