// sg-recipe: a YAML recipe of inputs, stages and checks: check, plan, run, expect, lock, verify, bisect.
#include "tools/cli/cli_complete.h"
#include "tools/recipe/commands.h"
#include "tools/recipe/complete.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"set", 's', "PARAMETER=VALUE", "set a parameter, fix an axis of the matrix, or set STAGE.OPTION=VALUE", {}, true},
    {"bless", 0, "", "expect: accept results as the new goldens, of stages whose other checks pass"},
    {"pipes", 0, "", "run each stage as its own tool, connected by pipes; the bytes are the same"},
    {"no-cache", 0, "", "remake everything, and keep nothing"},
    {"cache", 0, "DIR", "folder that keeps results (default: $STEPGRAPH_CACHE, else ~/.cache/stepgraph)"},
    {"cache-size", 0, "SIZE", "limit on the size of the cache", "10GiB"},
    {"fails", 0, "COMMAND",
     "bisect: a shell command, {} is the graph (else appended); exit 0 = bad, 125 = cannot tell"},
};

constexpr std::string_view kCommands[] = {"check", "plan", "run", "expect", "lock", "verify", "bisect", "schema"};

Result<int> run(const Args& args) { return recipe::run_command(args); }

void complete_from_recipe(const ValueRequest& request) {
  const bool is_known = request.kind == "PARAMETER" || request.kind == "GOOD" || request.kind == "BAD";
  if (is_known && request.line.operands.size() > 1) recipe::offer_from_recipe(request.line.operands[1], request, true);
}

constexpr Tool kTool = {
    .name = "sg-recipe",
    .summary = "check, plan and run a recipe of passes",
    .operands = "COMMAND RECIPE [GOOD BAD]",
    .details =
        "  check    is the recipe valid? every mistake with its line\n"
        "  plan     show what would run and why, and what is cached\n"
        "  run      run what is not cached, and perform the recipe's checks\n"
        "  expect   run, and write the goldens with --bless\n"
        "  lock     write RECIPE.lock: digests of all results\n"
        "  verify   run, and compare the digests with RECIPE.lock\n"
        "  bisect   find the stage between GOOD and BAD (default: the input and the last stage) that makes it bad\n"
        "  schema   print the JSON Schema of recipes, for editors\n\n"
        "RECIPE is a YAML file or -, see docs/recipes.md. Exit 1 when a check of the recipe fails.",
    .max_operands = 4,
    .reads_stdin = false,
    .options = kOptions,
    .examples = {{"sg-recipe check recipe.yaml", "every mistake in the recipe, with its line"},
                 {"sg-recipe run recipe.yaml -j4 --set policy=full", "run it with one parameter changed"}},
    .run = run,
    .commands = kCommands,
    .values = complete_from_recipe,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
