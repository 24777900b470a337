// sg-sweep: a recipe at many points: options over a grid, and a search between the best; time against peak memory.
#include "tools/cli_complete.h"
#include "tools/cli_job.h"
#include "tools/recipe/complete.h"
#include "tools/sweep/commands.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"over", 'x', "PARAMETER=VALUES", "an axis: chunks=2,4,8 or remat.budget=0..1:0.25 (STAGE.OPTION)", {}, true},
    {"set", 's', "PARAMETER=VALUE", "as in sg-recipe, at every point", {}, true},
    {"search", 'n', "N", "so many points more, between neighbours on the front", "0"},
    {"peak", 0, "SIZE", "which points fit; exit 1 when none does"},
    {"score", 0, "sim|run", "the simulated step and its planned peak, or those of sg-run", "sim"},
    {"machine", 'm', "MACHINE|FILE", "what sim simulates; without it the recipe's", "h100-8"},
    {"run", 0, "OPTIONS", "how run runs, as '--inputs F --steps 5'; else --init seed:0 --steps 3"},
    {"stage", 0, "STAGE", "whose result is scored; without it the last"},
    {"checks", 0, {}, "points have to hold what the recipe asks for: assertions, runs"},
    {"points", 0, "FILE", "where points are kept, JSON lines; else RECIPE.sweep.jsonl"},
    {"fresh", 0, {}, "do not take points from that file"},
    {"plot", 'p', "FILE", "write time against peak as a picture: .svg or .html"},
    {"no-cache", 0, {}, "make every graph anew, and keep none"},
    {"cache", 0, "DIR", "where graphs are kept: sg-recipe's place without it"},
    {"cache-size", 0, "SIZE", "the most that is kept", "10GiB"},
};

void complete_from_recipe(const ValueRequest& request) {
  const bool is_known = request.kind == "PARAMETER" || request.kind == "STAGE";
  if (is_known && !request.line.operands.empty()) recipe::offer_from_recipe(request.line.operands[0], request, false);
}

Result<int> run(const Args& args) { return sweep::run_sweep(args); }

constexpr Tool kTool = {
    .name = "sg-sweep",
    .summary = "score a recipe at many points: the time of a step against its peak memory",
    .operands = "RECIPE",
    .details =
        "RECIPE is a YAML file as sg-recipe takes it (docs/recipes.md); its matrix is swept over, too. Each point is\n"
        "kept as soon as it is known: the same command goes on where it was interrupted. Where a pass cannot be\n"
        "applied, the point is kept as failed, and the others go on. docs/sweep.md.",
    .reads_stdin = false,
    .options = kOptions,
    .examples = {{"sg-sweep recipe.yaml --over policy=default,full", "two policies, simulated"},
                 {"sg-sweep recipe.yaml --set policy=all --over remat.budget=0..1:0.5 --search 4 --plot sweep.html",
                  "how much memory costs how much time, and a picture"}},
    .run = run,
    .values = complete_from_recipe,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
