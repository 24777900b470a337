// stepgraph: the front of the suite. `stepgraph print G` runs `sg-print G` from the same folder.
#include "libgraph/base/nearest.h"
#include "tools/cli/cli_siblings.h"
#include "tools/cli/cli_write.h"
#include "tools/commands.h"
#include "tools/stepgraph_complete.h"

using namespace sg;
using namespace sg::cli;

namespace {

// Nothing would come of them.
Status refuse_options_before(const Args& args, const std::string& command) {
  const auto given = args.given();
  if (given.empty()) return ok_status();
  const std::string option = "--" + given[0].first;
  return Error{ErrorKind::usage,
               "`" + option + "` stands before the command",
               {},
               "options of a command follow its name: stepgraph " + command + " " + option};
}

Result<int> run(const Args& args) {
  std::vector<std::string> words = args.operands();
  if (words.empty() || (words.size() == 1 && words[0] == "help")) {
    SG_TRY(write_whole("-", help_text(args.tool(), false)));
    return words.empty() ? static_cast<int>(ErrorKind::usage) : 0;
  }
  if (words[0] == "completions") return print_completions(args);
  if (words[0] == "help") words = {words[1], "--help"};
  bool is_tool = words[0].find('/') == std::string::npos && has_sibling(words[0]);
  if (is_tool) {
    SG_TRY(refuse_options_before(args, words[0]));
    return run_sibling(std::move(words));
  }
  std::string hint = nearest_hint(words[0], kCommands, "stepgraph ");
  return Error{ErrorKind::usage,
               "unknown command `" + words[0] + "`",
               {},
               hint.empty() ? "`stepgraph --help` lists them" : hint};
}

constexpr Tool kTool = {
    .name = "stepgraph",
    .summary = "one training step as a file",
    .operands = "COMMAND [ARGUMENT]...",
    .details = kCommandsHelp,
    .max_operands = SIZE_MAX,
    .reads_stdin = false,
    .stops_at_operand = true,
    .examples = {{"stepgraph check step.sg", "run sg-check"}, {"stepgraph help print", "the help of sg-print"}},
    .run = run,
    .commands = kCommands,
    .values = complete_suite,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
