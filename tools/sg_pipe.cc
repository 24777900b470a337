// sg-pipe: several passes in one process, with the means to find the pass that went wrong.
#include "tools/pipe_command.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"pass", 'p', "STAGE", "a stage: a pass and its options, as 'remat --policy full'", {}, true},
    {"resume", 0, {}, "run the stages named in the graph, a file that a failed pass left"},
    {"stop-after", 0, "PASS", "stop after this stage: a pass, or clean:2 for the second clean"},
    {"disable", 0, "PASS", "skip this stage", {}, true},
    {"dump-after", 0, "REGEX", "write the graph after stages whose name matches (--dump-to alone: all)"},
    {"dump-to", 0, "DIR", "folder for these graphs: DIR/01-clean.sg, ...", "."},
};

constexpr Tool kTool = {
    .name = "sg-pipe",
    .summary = "run several passes in one process",
    .operands = "[GRAPH]",
    .details =
        "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.\n"
        "The result is byte for byte that of the same tools in a pipe; each stage is verified.",
    .writes = Writes::graph,
    .options = kOptions,
    .examples = {{"sg-pipe step.sg --pass clean --pass 'remat --policy full' -o lean.sg", "two passes"},
                 {"sg-pipe step.sg --pass clean --pass remat --dump-after . --dump-to stages -o lean.sg",
                  "and each stage as a file"}},
    .run = run_pipe,
    .values = complete_stage,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
