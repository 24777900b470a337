// sg-import: what PyTorch recorded or exported, as a graph file. import_sources.cc lists the sources.
//
// One capture is one rank; several, or a rank pattern, are a rank set and become one job: proven SPMD, or kept
// separate.
#include "tools/import/import_command.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"from", 0, "capture|pt2|fx|torch-trace", "kind of source (default: detected from its content)"},
    {"spmd", 0, "", "one rank's capture stands for every rank of its world"},
    {"world", 0, "N", "ranks of the job, where a text or trace does not say how large its groups are"},
    {"rank", 'r', "N", "rank to import from a trace of several ranks"},
    {"compile-id", 0, "ID", "compilation to import from a trace of several, as 0/0"},
    {"list", 0, "", "list what the source holds, and write no graph"},
    {"model", 0, "NAME", "model to import from an archive that holds several"},
    {"data", 0, "FILE", "safetensors file for weights and constants (default: beside the output)", {}, false, true},
    {"check", 0, "", "compare recorded types with inferred ones, and write no graph"},
};

constexpr Tool kTool = {
    .name = "sg-import",
    .summary = "turn captures, traces and exported programs into a graph",
    .operands = "[SOURCE]...",
    .details =
        "SOURCE is capture JSON, plain or gzipped; a torch.export archive (.pt2), whose weights go to a safetensors\n"
        "file beside the output; a graph as FX prints it (print_readable, tlparse); a TORCH_TRACE log or tlparse's\n"
        "output folder; the folder of a capture, of one rank or of all; or a rank pattern such as 'rank{r}/step.json'.",
    .max_operands = SIZE_MAX,
    .writes = Writes::graph,
    .reads_graph = false,
    .options = kOptions,
    .examples = {{"sg-import step.json -o step.sg", "a graph file of one rank"},
                 {"sg-import 'rank{r}/step.json' | sg-print | less", "all ranks as one job, shown as text"}},
    .run = run_import,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
