// sg-reduce: a failing job to a small one that still fails.
//
// Takes nodes, outputs and metadata away for as long as a command says that what is left still shows the failure.
#include "tools/cli.h"
#include "tools/reduce/commands.h"

using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"fails", 0, "CMD", "a shell command, run with a candidate's path behind it; exit 0: it still fails, 125: skip"},
    {"interesting-if", 0, "pass|fail|regex:RE",
     "what of the command says so: exit 0, any other exit, or what it prints", "pass"},
    {"timeout", 0, "N", "seconds after which the command is taken for a no", "60"},
    {"attempts", 0, "N", "ask so often before a no counts; without it as often as three runs at the start suggest"},
    {"keep-metadata", 0, {}, "leave modules, source lines and metadata as they are"},
    {"show", 0, {}, "pass on what the command writes, to standard error"},
};

constexpr Tool kTool = {
    .name = "sg-reduce",
    .summary = "shrink a failing job to a small one that still fails",
    .operands = "[GRAPH] --fails CMD",
    .details =
        "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input. Ranks are reduced\n"
        "together. Ctrl-C ends the search and keeps the best. -j N asks about N candidates at once.",
    .writes = Writes::graph,
    .options = kOptions,
    .examples = {{"sg-reduce step.sg --fails 'grep -q aten.mm' -o small.sg",
                  "any command does: here, what has a matrix product"},
                 {"sg-print step.sg | sg-reduce --fails 'grep -q aten.mm' --text", "in a pipe, as text"}},
    .run = sg::reduce::reduce_operand,
};

}  // namespace

int main(int argc, char** argv) { return sg::cli::main(kTool, argc, argv); }
