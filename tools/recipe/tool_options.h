// The options of the tools that a recipe may use, from the tools' own tables, and a recipe's settings held against
// them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "libpasses/pass.h"
#include "tools/recipe/recipe.h"

namespace sg::recipe {

struct OptionRow {
  std::string name, argument;  // argument: empty = a flag; "N"; "a|b"; FILE and GRAPH are paths beside the recipe
  bool repeated = false;
};

// One option as given: a flag, or one value.
struct OptionValue {
  std::string name, value;
  Location where;
  bool is_flag = false;
  size_t file_at = std::string::npos;  // where the name of a file that the tool reads begins, as seen from here
  bool is_path() const { return file_at != std::string::npos; }
  std::string path() const { return value.substr(file_at); }
};
using OptionValues = std::vector<OptionValue>;

class ToolTable {
 public:
  // What `--help-json` of a tool beside this program says, asked once. Left out is what is the recipe's own: streams,
  // messages, files that are written.
  Result<const std::vector<OptionRow>*> of_tool(const std::string& name);
  const std::vector<OptionRow>& of_pass(const PassInfo& pass);

 private:
  std::map<std::string, std::vector<OptionRow>> rows_;
};

// What the table does not allow goes to `problems`, and `*all` tells whether nothing was left out. `keys_beside`: what
// stands beside the tool, not among its options.
OptionValues values_of(const std::vector<Setting>& settings, const std::string& tool,
                       const std::vector<OptionRow>& rows, std::span<const std::string_view> keys_beside, bool* all,
                       Diagnostics* problems);

std::vector<std::string> command_words(const OptionValues& options);  // "--policy", "full"
PassOptions pass_options(const OptionValues& options);                // without --best-effort, which is the pipeline's
bool has_option(const OptionValues& options, std::string_view name);

}  // namespace sg::recipe
