// sg-parse: a text as a graph file.
//
// Reports every error of the text with line, column and a hint; with errors, writes nothing. Also reads a binary graph
// and rewrites it.
#include "tools/cli/cli_load.h"
#include "tools/cli/cli_write.h"

using namespace sg;
using namespace sg::cli;

namespace {

Result<int> run(const Args& args) {
  SG_ASSIGN(Job job, read_job(args, args.input()));
  SG_TRY(write_job(args, job));
  return leave(args, 0);
}

constexpr Tool kTool = {
    .name = "sg-parse",
    .summary = "turn text into a graph file",
    .operands = "[TEXT]",
    .details = "TEXT is a text file (docs/text-format.md), a rank pattern, or - for standard input.",
    .writes = Writes::graph,
    .examples = {{"sg-parse step.sg.txt -o step.sg", "a graph file from a text written by hand"},
                 {"sg-print step.sg | sg-parse | sg-check", "print, parse again, and check the result"}},
    .run = run,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
