// The options of the tools that a recipe may use, from the tools' own tables, and a recipe's settings as words.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "libpasses/pass.h"
#include "tools/recipe/recipe.h"

namespace sg::recipe {

struct OptionRow {
  std::string name, argument;        // argument: empty = a flag; "N"; "a|b"; FILE and GRAPH are paths beside the recipe
  bool repeated = false;
};

class ToolTable {
 public:
  // What `--help-json` of a tool beside this program says, asked once. Options about streams and messages are left out.
  Result<const std::vector<OptionRow>*> of_tool(const std::string& name);
  const std::vector<OptionRow>& of_pass(const PassInfo& pass);

 private:
  std::map<std::string, std::vector<OptionRow>> rows_;
};

// The settings as words of a command line, "--policy", "full", paths as seen from here; `files` gets the paths among them. What the
// table does not allow goes to `problems`.
std::vector<std::string> words_of(const std::vector<Setting>& settings, const std::string& tool, const std::vector<OptionRow>& rows,
                                  std::vector<std::string>* files, Diagnostics* problems);

// The same words as a pass takes them.
PassOptions pass_options(const std::vector<std::string>& words);

}  // namespace sg::recipe
