// sg-doctor: which parts of Stepgraph work on this machine.
#include "tools/doctor/commands.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"need",
     'n',
     "tools|processor|memory|cache|manuals|mpi|cuda|nccl|torch,...",
     "exit 1 unless these are present",
     {},
     true},
    {"no-torch", 0, {}, "do not look for a Python with PyTorch (importing it takes seconds)"},
};

constexpr Tool kTool = {
    .name = "sg-doctor",
    .summary = "report which parts of Stepgraph work on this machine",
    .operands = "",
    .details =
        "Checks the tools, processor, memory, cache, manuals, MPI, CUDA, NCCL and PyTorch; changes nothing.\n"
        "Exit 1 when something that should work does not, or when something that --need names is missing.",
    .max_operands = 0,
    .reads_stdin = false,
    .options = kOptions,
    .examples = {{"stepgraph doctor --no-torch", "what this machine has, without the slow search for PyTorch"},
                 {"stepgraph doctor --no-torch --need tools,processor --json -o doctor.json",
                  "a JSON report for a script; exit 1 if one of the two is missing"}},
    .run = doctor::run_doctor,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
