// sg-import: what PyTorch recorded or exported, to a graph file. import_sources.cc lists the sources.
//
// One capture is one rank; several, or a rank pattern, are a rank set and become one job: proven SPMD, or kept apart.
#include "tools/import_command.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"from", 0, "capture|pt2|fx|torch-trace", "what kind of source it is, instead of telling it by its content"},
    {"spmd", 0, "", "one rank's capture stands for every rank of its world"},
    {"rank", 'r', "N", "of a trace of several ranks the one that is meant"},
    {"compile-id", 0, "ID", "of a trace of several compilations the one that is meant: 0/0"},
    {"list", 0, "", "say what the source holds, and write no graph"},
    {"model", 0, "NAME", "which model of an archive that holds several"},
    {"data", 0, "FILE", "where weights and constants go, as safetensors (default: beside the output)"},
    {"check", 0, "", "compare recorded types with inferred ones, and write no graph"},
};

constexpr Tool kTool = {
    .name = "sg-import",
    .summary = "turn captures, traces and exported programs into a graph",
    .operands = "[SOURCE]...",
    .details =
        "SOURCE is capture JSON, plain or gzipped; a torch.export archive (.pt2), whose weights go to a safetensors\n"
        "file beside the output; the text of a graph that FX prints (print_readable, tlparse); a TORCH_TRACE log or\n"
        "tlparse's folder; the folder of a capture, of one rank or of all; or a rank pattern such as\n"
        "'rank{r}/step.json'.",
    .max_operands = SIZE_MAX,
    .writes = Writes::graph,
    .options = kOptions,
    .examples = {{"sg-import step.json -o step.sg", "one rank"},
                 {"sg-import 'rank{r}/step.json' | sg-print | less", "all ranks into one job, read as text"}},
    .run = run_import,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
