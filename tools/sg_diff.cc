// sg-diff: what changed from one graph to another.
//
// Matches by content and position, never by names, and explains what edits amount to. Exit 0: same, 1: differs, 2: any
// error.

#include <new>

#include "tools/diff_command.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"ignore", 0, "name|meta|order|loc,...", "differences to ignore", {}, true},
    {"stat", 0, "", "one line per block of modules, and the total"},
    {"name-only", 0, "", "one line per edit: what happened, and the node's name"},
    {"side", 0, "", "show both sides next to each other, as wide as the terminal or $COLUMNS"},
    {"full", 0, "", "also show edits that are explained, and every rename and move"},
    {"context", 'U', "N", "nodes shown around an edit", "2"},
    {"format", 0, "text|json|github|junit|sarif", "format of the report; --json is --format=json", "text"},
    {"machine", 'm', "MACHINE|FILE|none", "machine on which to simulate the critical path of both graphs", "h100-8"},
    {"no-cost", 0, "", "omit the comparison of flops, bytes, communication, memory and time"},
};

constexpr ExitCode kExitCodes[] = {{0, "no difference", "the graphs are the same"},
                                   {1, "they differ", "they differ"},
                                   {2, "any trouble", "any trouble: a wrong option, an input that cannot be read"},
                                   kInternalError};

constexpr Tool kTool = {
    .name = "sg-diff",
    .summary = "show what changed from one graph to another",
    .operands = "A B",
    .details = "A and B are .sg files, texts, or rank patterns; one of them may be - for standard input.",
    .max_operands = 2,
    .reads_stdin = false,
    .options = kOptions,
    .exit_codes = kExitCodes,
    .examples = {{"sg-diff step.sg.txt step.sg", "edits in the text form, and what they add up to"},
                 {"sg-diff --ignore name,loc --stat step.sg.txt step.sg",
                  "where it changed, ignoring names and source lines"}},
    .run = diff_operands,
    .any_failure = ErrorKind::usage,  // as in diff(1): unreadable input and lack of memory, too
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
