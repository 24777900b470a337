// sg-diff: what changed from one graph to another.
//
// Matches by content and position, never by names; says what edits amount to; exit 0 same, 1 differs, 2 any trouble.

#include <new>

#include "libgraph/diff/diff_text.h"
#include "tools/cli_diff.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"ignore", 0, "name|meta|order|loc,...", "what is no difference", {}, true},
    {"stat", 0, "", "a line a block of modules, and the sum"},
    {"name-only", 0, "", "a line an edit: what happened, and the node's name"},
    {"side", 0, "", "both sides beside each other; as wide as the terminal, or COLUMNS says"},
    {"full", 0, "", "edits that are explained too, and every rename and move"},
    {"context", 'U', "N", "nodes shown around an edit", "2"},
    {"format", 0, "text|json|github|junit|sarif", "how the report is written; --json is --format=json", "text"},
    {"machine", 'm', "MACHINE|FILE|none", "simulate the critical path of both on this machine, or not", "h100-8"},
    {"no-cost", 0, "", "leave out flops, bytes, communication, memory and time of both"},
};

// Whatever stands in the way is exit 2, as in diff(1): unreadable input and too little memory included.
Result<int> run(const Args& args) {
  try {
    Result<int> code = diff_operands(args);
    if (!code.ok() && code.error().kind != ErrorKind::internal) code.error().kind = ErrorKind::usage;
    return code;
  } catch (const std::bad_alloc&) {
    return Error{ErrorKind::usage, "out of memory", {}, "use a machine with more memory, or smaller graphs"};
  }
}

constexpr Tool kTool = {
    .name = "sg-diff",
    .summary = "say what changed from one graph to another",
    .operands = "A B",
    .details =
        "A and B are .sg files, texts, or rank patterns; one of them may be - for standard input.\n"
        "Exit 0: no difference; 1: they differ; 2: trouble of any kind.",
    .max_operands = 2,
    .reads_stdin = false,
    .options = kOptions,
    .examples = {{"sg-diff step.sg.txt step.sg", "edits in the text form, and what they amount to"},
                 {"sg-diff --ignore name,loc --stat step.sg.txt step.sg", "where it changed, names and lines aside"}},
    .run = run,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
