// stepgraph: the front of the suite. `stepgraph print G` is `sg-print G`, run from beside this program.
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "libgraph/nearest.h"
#include "tools/cli_job.h"

using namespace sg;
using namespace sg::cli;

namespace {

std::string folder_of_this() {
  char path[4096];
  ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  std::string self(path, n > 0 ? static_cast<size_t>(n) : 0);
  return self.substr(0, self.rfind('/') + 1);
}

Error unknown_command(const std::string& command) {
  constexpr std::string_view kCommands[] = {"import", "print", "parse", "check", "stat", "help"};
  std::string hint = nearest_hint(command, kCommands, "stepgraph ");
  return {ErrorKind::usage, "unknown command `" + command + "`", {}, hint.empty() ? "`stepgraph --help` lists them" : hint};
}

Result<int> run(const Args& args) {
  std::vector<std::string> words = args.operands();
  if (words.empty() || (words.size() == 1 && words[0] == "help")) {
    SG_TRY(write_whole("-", help_text(args.tool(), false)));
    return words.empty() ? static_cast<int>(ErrorKind::usage) : 0;
  }
  if (words[0] == "help") words = {words[1], "--help"};
  std::string program = folder_of_this() + "sg-" + words[0];
  if (words[0].find('/') != std::string::npos || ::access(program.c_str(), X_OK) != 0) return unknown_command(words[0]);
  words[0] = "sg-" + words[0];
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(program.c_str(), arguments.data());
  return Error{ErrorKind::missing, "cannot run " + words[0] + ": " + std::strerror(errno), {}, {}};
}

constexpr Tool kTool = {"stepgraph", "one training step as a file", "COMMAND [ARGUMENT]...",
                        "  import  turn captures of a training step into a graph\n"
                        "  print   write a graph as text\n"
                        "  parse   turn a text into a graph file\n"
                        "  check   verify graphs\n"
                        "  stat    count nodes, parameters, flops, bytes and communication\n"
                        "  help    print the help of a command\n\n"
                        "`stepgraph print` is `sg-print`; options of a command follow its name.",
                        SIZE_MAX, false, Writes::report, true, {},
                        {{"stepgraph check step.sg", "run sg-check"}, {"stepgraph help print", "the help of sg-print"}},
                        run};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
