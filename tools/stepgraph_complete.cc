#include "tools/stepgraph_complete.h"

#include <algorithm>

#include "libgraph/base/nearest.h"
#include "tools/cli/cli_siblings.h"
#include "tools/cli/cli_write.h"
#include "tools/commands.h"

namespace sg::cli {
namespace {

constexpr std::string_view kShells[] = {"bash", "zsh", "fish"};

// Asks the tool itself; the `words` answer has everything that a Completion has.
void complete_by_sibling(const std::string& command, const ValueRequest& request) {
  const TypedLine& line = request.line;
  size_t first = 0;
  while (first < line.words.size() && line.words[first] != command) ++first;
  if (first >= line.at || !has_sibling(command)) return;
  std::vector<std::string> words = {command, "--complete", "words", std::to_string(line.at - first - 1)};
  words.insert(words.end(), line.words.begin() + static_cast<ptrdiff_t>(first) + 1, line.words.end());
  if (Result<std::string> answer = output_of_sibling(words); answer.ok()) read_answer(*answer, request.out);
}

}  // namespace

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

void complete_suite(const ValueRequest& request) {
  if (request.line.operands.empty()) return;
  const std::string& command = request.line.operands[0];
  if (command != "help" && command != "completions") return complete_by_sibling(command, request);
  if (request.line.operands.size() > 1) return;
  const std::span<const std::string_view> words =
      command == "help" ? kCommands : std::span<const std::string_view>(kShells);
  for (std::string_view word : words) request.offer(std::string(word));
}

}  // namespace sg::cli
