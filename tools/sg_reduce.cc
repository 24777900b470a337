// sg-reduce: shrinks a failing job to a small one that still fails.
//
// Removes nodes, outputs, ranks and metadata as long as a command says that the rest still fails.
#include "tools/cli/cli.h"
#include "tools/reduce/commands.h"

using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"fails", 0, "CMD", "shell command, {} is a candidate (else appended); exit 0: it still fails, 125: skip"},
    {"interesting-if", 0, "pass|fail|regex:RE",
     "what counts as a failure: exit 0, non-zero exit, or output matching RE", "pass"},
    {"timeout", 0, "N", "seconds after which a command counts as not failing, 0 = never", "60"},
    {"attempts", 0, "N", "runs before a candidate counts as not failing (default: estimated from three runs)"},
    {"keep-metadata", 0, {}, "keep modules, source lines and metadata"},
    {"keep-ranks", 0, {}, "keep the number of ranks: for a command that starts so many"},
    {"show", 0, {}, "copy the command's output to standard error"},
};

constexpr Tool kTool = {
    .name = "sg-reduce",
    .summary = "shrink a failing job to a small one that still fails",
    .operands = "[GRAPH] --fails CMD",
    .details =
        "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input. Ranks are reduced\n"
        "together. Ctrl-C ends the search and keeps the best. -j N tests N candidates at once.",
    .writes = Writes::graph,
    .options = kOptions,
    .examples = {{"sg-reduce step.sg --fails 'grep -q aten.mm' -o small.sg",
                  "the smallest graph that still has a matrix product"},
                 {"sg-print step.sg | sg-reduce --fails 'grep -q aten.mm' --text", "the same in a pipe, as text"}},
    .run = sg::reduce::reduce_operand,
};

}  // namespace

int main(int argc, char** argv) { return sg::cli::main(kTool, argc, argv); }
