// sg-view: a step as one HTML file that needs no network, or in another program's format.
//
// Modules, nodes, a simulated timeline, live memory; with two graphs, what changed.
#include "tools/cli/cli_sizes.h"
#include "tools/view/commands.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"format", 0, "html|dot|svg|json|perfetto|model-explorer", "an HTML page, or a format for other programs", "html"},
    {"machine", 'm', "MACHINE|FILE", "machine for the simulated timeline, as in sg-sim", "h100-8"},
    {"set", 's', "KEY=VALUE", "set one number of the machine, or multiply it: nvlink=2x", {}, true},
    kAssume,
    {"ignore", 0, "name|meta|order|loc,...", "differences to ignore", {}, true},
};

constexpr Tool kTool = {
    .name = "sg-view",
    .summary = "show a step as one HTML page: modules, timeline, memory, changes",
    .operands = "G [G2]",
    .details =
        "G and G2 are .sg files, texts, or rank patterns; one of them may be - for standard input. With G2, it shows "
        "what\n"
        "changed from G to G2. The page needs no network and no server; -o F.html writes it to a file.",
    .max_operands = 2,
    .writes = Writes::text,
    .options = kOptions,
    .examples = {{"sg-view step.sg -o step.html", "a page to open in a browser"},
                 {"sg-view step.sg.txt step.sg -o changes.html", "what changed, in colour"}},
    .run = view_operands,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
