// sg-export: a graph as a Python module of plain torch calls (libgraph/export/export_python.h).
#include "libgraph/edit/merge.h"
#include "libgraph/export/export_python.h"
#include "tools/cli/cli_load.h"
#include "tools/cli/cli_write.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"rank", 'r', "N", "export the program of rank N only"},
    {"fx", 0, "", "write builders of a torch.fx.GraphModule instead of functions"},
};

Result<int> run(const Args& args) {
  SG_TRY(refuse_json(args, "sg-export writes a Python module"));
  SG_ASSIGN(Job job, read_job(args, args.input()));
  if (args.has("rank")) {
    SG_ASSIGN(const uint32_t rank, held_rank(args, job));
    job = job_of_rank(job, rank);
  }
  SG_TRY(write_form(args, job, [&](const Job& one) { return export_python(one, {.fx = args.has("fx")}); }));
  return leave(args, 0);
}

constexpr Tool kTool = {
    .name = "sg-export",
    .summary = "write a graph as a Python module of plain torch calls",
    .operands = "[GRAPH]",
    .details =
        "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.\n"
        "The module runs as it is: `python step.py inputs.safetensors --expect expected.safetensors`,\n"
        "with several ranks under torchrun. Imported, `step(inputs)` runs on tensors by name.",
    .writes = Writes::text,
    .options = kOptions,
    .examples = {{"sg-export step.sg -o step.py", "a Python module of torch calls"},
                 {"sg-export step.sg --fx -o step_fx.py", "a module that builds a torch.fx graph"}},
    .run = run,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
