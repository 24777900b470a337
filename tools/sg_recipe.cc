// sg-recipe: a YAML recipe of inputs, stages and what has to hold: check, plan, run, expect, lock, verify, bisect.
#include "tools/cli_complete.h"
#include "tools/cli_job.h"
#include "tools/recipe/commands.h"
#include "tools/recipe/complete.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"set",
     's',
     "PARAMETER=VALUE",
     "a parameter's value; an axis of the matrix has this one; STAGE.OPTION=VALUE",
     {},
     true},
    {"bless", 0, "", "expect: take the results as the new goldens, where everything else holds"},
    {"pipes", 0, "", "run each stage as its tool, the graph through a pipe; the bytes are the same"},
    {"no-cache", 0, "", "make everything anew, and keep nothing"},
    {"cache", 0, "DIR", "where results are kept; default $STEPGRAPH_CACHE, else ~/.cache/stepgraph"},
    {"cache-size", 0, "SIZE", "the most that is kept", "10GiB"},
    {"fails", 0, "COMMAND", "bisect: a shell command, the graph's path appended; exit 0 = bad, 125 = cannot tell"},
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
        "  check    is it right? every mistake with its line\n"
        "  plan     what would run, and why; what is in the cache\n"
        "  run      run what is not in the cache, hold it against all that the recipe asks for\n"
        "  expect   run, and with --bless write the goldens\n"
        "  lock     write RECIPE.lock: digests of all results\n"
        "  verify   run, and hold the digests against RECIPE.lock\n"
        "  bisect   which stage between GOOD and BAD (the input and the last stage) makes it bad\n"
        "  schema   print the JSON Schema of recipes, for editors\n\n"
        "RECIPE is a YAML file, or -: docs/recipes.md. Exit 1 when something that the recipe asks for does not hold.",
    .max_operands = 4,
    .reads_stdin = false,
    .options = kOptions,
    .examples = {{"sg-recipe check recipe.yaml", "is it right?"},
                 {"sg-recipe run recipe.yaml -j4 --set policy=full", "run it, with one parameter changed"}},
    .run = run,
    .commands = kCommands,
    .values = complete_from_recipe,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
