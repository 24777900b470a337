#include "tools/cli/cli_named_files.h"

#include <algorithm>

#include "libpasses/file_in.h"
#include "tools/cli/cli_words.h"

namespace sg::cli {
namespace {

using Names = std::vector<std::string>;

constexpr std::string_view kPlanFile = "per-module:";  // of bucket --plan

// By form, as a tool that runs no passes does not know their options: machines, and plans of modules.
Names files_of_stage(std::string_view stage) {
  const Result<Names> words = split_words(stage, "");
  Names out;
  for (std::string_view word : words.ok() ? *words : Names()) {
    if (word.starts_with("--")) word.remove_prefix(std::min(word.find('='), word.size() - 1) + 1);
    else if (word.starts_with('-')) word.remove_prefix(std::min<size_t>(2, word.size()));
    if (word.starts_with(kPlanFile)) out.emplace_back(word.substr(kPlanFile.size()));
    else if (is_machine_file(word)) out.emplace_back(word);
  }
  return out;
}

Names words_of_command(std::string_view command) {
  Names out;
  for (size_t begin = 0; begin <= command.size();) {
    const size_t end = std::min(command.find_first_of(" \t\n;|&<>()'\"", begin), command.size());
    if (end > begin) out.emplace_back(command.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace

std::vector<std::string> files_named(const Option& option, std::string_view value) {
  if (option.argument == "STAGE") return files_of_stage(value);
  if (option.argument == "CMD") return words_of_command(value);
  const size_t at = file_in(option.argument, value);
  return at == value.npos ? Names{} : Names{std::string(value.substr(at))};
}

}  // namespace sg::cli
