#include "tools/recipe/command_options.h"

#include <algorithm>
#include <vector>

namespace sg::recipe {
namespace {

struct Taken {
  std::string_view option;
  std::vector<std::string_view> by;  // the commands
};

const std::vector<Taken>& table() {
  static const std::vector<Taken> kTaken = {
      {"bless", {"expect"}},
      {"fails", {"bisect"}},
      {"pipes", {"run", "expect", "lock", "verify", "bisect"}},
      {"no-cache", {"plan", "run", "expect", "lock", "verify", "bisect"}},
      {"cache", {"plan", "run", "expect", "lock", "verify", "bisect"}},
      {"cache-size", {"plan", "run", "expect", "lock", "verify", "bisect"}},
      {"set", {"check", "plan", "run", "expect", "lock", "verify", "bisect"}},
      {"json", {"check", "plan", "run", "expect", "verify", "bisect"}},
      {"output", {"check", "plan", "run", "expect", "lock", "verify", "bisect", "schema"}},
  };
  return kTaken;
}

Status not_taken(std::string_view command, const Taken& taken) {
  std::string by;
  for (size_t i = 0; i < taken.by.size(); ++i)
    by += (i == 0 ? "" : i + 1 == taken.by.size() ? " and " : ", ") + std::string(taken.by[i]);
  const std::string option = "--" + std::string(taken.option);
  return Error{
      ErrorKind::usage, "`" + std::string(command) + "` does not take " + option, {}, option + " is for " + by};
}

}  // namespace

Status check_options_of(const cli::Args& args, std::string_view command) {
  for (const Taken& taken : table())
    if (args.has(taken.option) && std::ranges::count(taken.by, command) == 0) return not_taken(command, taken);
  const bool runs = command == "run" || command == "expect" || command == "verify";
  if (runs && args.has("output") && !args.has("json") && !args.has("dry-run"))
    return Error{ErrorKind::usage,
                 "`" + std::string(command) + "` writes to -o only with --json or --dry-run",
                 {},
                 "`output: " + args.text("output") + "` in a stage of the recipe writes the stage's result"};
  const size_t most = command == "schema" ? 1 : command == "bisect" ? 4 : 2;
  if (args.operands().size() <= most) return ok_status();
  return Error{ErrorKind::usage,
               "unexpected argument `" + args.operands()[most] + "`",
               {},
               "`" + std::string(command) + "` takes " +
                   (most == 1   ? "no recipe"
                    : most == 2 ? "one recipe"
                                : "a recipe, a good graph and a bad one")};
}

}  // namespace sg::recipe
