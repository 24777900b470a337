// stepgraph: the front of the suite. `stepgraph print G` is `sg-print G`, run from beside this program.
#include <algorithm>

#include "libgraph/nearest.h"
#include "tools/cli_complete.h"
#include "tools/cli_job.h"
#include "tools/cli_siblings.h"
#include "tools/commands.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr std::string_view kShells[] = {"bash", "zsh", "fish"};

Result<int> print_completions(const Args& args) {
  std::string shell = args.operands().size() == 2 ? args.operands()[1] : "";
  if (std::find(std::begin(kShells), std::end(kShells), shell) == std::end(kShells))
    return Error{ErrorKind::usage, "`completions` takes one of bash, zsh, fish", {}, nearest_hint(shell, kShells)};
  std::vector<std::string> names = {"stepgraph"};
  for (std::string_view command : kCommands)
    if (has_sibling(command)) names.push_back("sg-" + std::string(command));
  SG_TRY(write_whole("-", completion_script(names, shell)));
  return 0;
}

// What stands behind a command is completed by its tool: fish's form of an answer has all that a Completion has.
void complete_by_sibling(const std::string& command, const ValueRequest& request) {
  const TypedLine& line = request.line;
  size_t first = 0;
  while (first < line.words.size() && line.words[first] != command) ++first;
  if (first >= line.at || !has_sibling(command)) return;
  std::vector<std::string> words = {command, "--complete", "words", std::to_string(line.at - first - 1)};
  words.insert(words.end(), line.words.begin() + static_cast<ptrdiff_t>(first) + 1, line.words.end());
  if (Result<std::string> answer = output_of_sibling(words); answer.ok()) read_answer(*answer, request.out);
}

void complete_argument(const ValueRequest& request) {
  if (request.line.operands.empty()) return;
  const std::string& command = request.line.operands[0];
  if (command != "help" && command != "completions") return complete_by_sibling(command, request);
  if (request.line.operands.size() > 1) return;
  const std::span<const std::string_view> words =
      command == "help" ? kCommands : std::span<const std::string_view>(kShells);
  for (std::string_view word : words) request.offer(std::string(word));
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
  if (is_tool) return run_sibling(std::move(words));
  std::string hint = nearest_hint(words[0], kCommands, "stepgraph ");
  return Error{ErrorKind::usage,
               "unknown command `" + words[0] + "`",
               {},
               hint.empty() ? "`stepgraph --help` lists them" : hint};
}

constexpr Tool kTool = {"stepgraph",
                        "one training step as a file",
                        "COMMAND [ARGUMENT]...",
                        "  import       turn captures of a training step into a graph\n"
                        "  export       write a graph as a Python module of torch calls\n"
                        "  clean        remove what nobody sees from a step\n"
                        "  remat        compute forward values again in the backward\n"
                        "  offload      let values wait for the backward on the host\n"
                        "  chunk        run modules once for each chunk of their rows\n"
                        "  overlap      run exchanges, gathers and reductions while something else computes\n"
                        "  bucket       gather and reduce the parameters of a block at once, launched ahead\n"
                        "  concretize   put numbers for the symbolic sizes of a graph\n"
                        "  pipe         run passes one after the other in one process\n"
                        "  print        write a graph as text\n"
                        "  parse        turn a text into a graph file\n"
                        "  check        verify graphs\n"
                        "  diff         say what changed from one graph to another\n"
                        "  log          say how a graph came to be\n"
                        "  explain      say of a node who made it and what becomes of it\n"
                        "  run          execute a step on its ranks\n"
                        "  recipe       check, plan and run a recipe of passes\n"
                        "  reduce       shrink a failing job to a small one that still fails\n"
                        "  sim          simulate a step on a machine\n"
                        "  stat         count nodes, parameters, flops, bytes and communication\n"
                        "  view         show a step as one HTML page\n"
                        "  sweep        score a recipe at many points: time against peak memory\n"
                        "  doctor       say what of Stepgraph works on this machine\n"
                        "  completions  print what completes commands and options in bash, zsh or fish\n"
                        "  help         print the help of a command\n\n"
                        "`stepgraph print` is `sg-print`; options of a command follow its name.",
                        SIZE_MAX,
                        false,
                        Writes::report,
                        true,
                        {},
                        {{"stepgraph check step.sg", "run sg-check"}, {"stepgraph help print", "the help of sg-print"}},
                        run,
                        kCommands,
                        complete_argument};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
