// sg-sweep: a recipe at many points: a grid over options and a search between the best; time against peak memory.
#include "tools/cli/cli_complete.h"
#include "tools/recipe/complete.h"
#include "tools/sweep/commands.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"over", 'x', "PARAMETER=VALUES", "an axis: chunks=2,4,8 or remat.budget=0..1:0.25 (STAGE.OPTION)", {}, true},
    {"set", 's', "PARAMETER=VALUE", "as in sg-recipe, at every point", {}, true},
    {"search", 'n', "N", "then evaluate N more points between neighbours on the front", "0"},
    {"peak", 0, "SIZE", "memory limit: mark points that fit; exit 1 when none does"},
    {"score", 0, "sim|run", "time and peak from a simulation and the memory plan, or from sg-run", "sim"},
    {"machine", 'm', "MACHINE|FILE", "machine to simulate; if not given, the recipe's, if any", "h100-8"},
    {"run", 0, "OPTIONS", "options of --score run, as '--inputs F --steps 5' (default: --init seed:0 --steps 3)"},
    {"stage", 0, "STAGE", "stage whose result is scored (default: the last)"},
    {"checks", 0, {}, "points must also pass the recipe's checks: assertions, runs"},
    {"points", 0, "FILE", "JSON Lines file that keeps the points (default: RECIPE.sweep.jsonl)", {}, false, true},
    {"fresh", 0, {}, "ignore the points already in that file"},
    {"plot", 'p', "FILE", "plot time against peak: .svg or .html", {}, false, true},
    {"no-cache", 0, {}, "remake every graph, and keep none"},
    {"cache", 0, "DIR", "folder that keeps graphs (default: that of sg-recipe)"},
    {"cache-size", 0, "SIZE", "limit on the size of the cache", "10GiB"},
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
        "RECIPE is a YAML file as sg-recipe takes it (docs/recipes.md); its matrix is swept, too. Each point is\n"
        "saved as soon as it is known, so an interrupted sweep resumes with the same command. Where a pass cannot be\n"
        "applied, the point is recorded as failed and the sweep continues. See docs/sweep.md.",
    .reads_stdin = false,
    .options = kOptions,
    .examples = {{"sg-sweep recipe.yaml --over policy=default,full", "simulated time and planned peak of two policies"},
                 {"sg-sweep recipe.yaml --set policy=all --over remat.budget=0..1:0.5 --search 4 --plot sweep.html",
                  "what saving memory costs in time, with a plot"}},
    .run = run,
    .values = complete_from_recipe,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
