// sg-sim: how long a step takes on a machine, and what it waits for.
//
// A simulated timeline of compute, communicators, copies and the host, with the critical path. Nothing is run.
#include "tools/cli/cli_sizes.h"
#include "tools/sim/sim_command.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"machine", 'm', "MACHINE|FILE", "a built-in machine (--list) or a YAML file", "h100-8"},
    {"set", 's', "KEY=VALUE", "set one number of the machine, or multiply it: nvlink=2x", {}, true},
    {"ranks", 0, "N", "world size to simulate instead of the job's, for groups that span the world"},
    kAssume,
    {"rows", 0, "N", "rows of the critical path", "12"},
    {"trace", 0, "FILE", "write the timeline as JSON for Perfetto", {}, false, true},
    {"measured", 0, "FILE", "compare with a profile of sg-run --profile or PyTorch's profiler"},
    {"calibrate", 0, {}, "write a machine file, measured here or fitted to the --measured profile, and exit"},
    {"repeats", 0, "N", "with --calibrate: repetitions of each measurement", "9"},
    {"list", 0, {}, "list the built-in machines and exit"},
    {"show-machine", 0, {}, "print the machine, with --set applied, as YAML and exit"},
};

constexpr Tool kTool = {
    .name = "sg-sim",
    .summary = "simulate a step on a machine: time, exposed communication, critical path",
    .operands = "[GRAPH]",
    .details = "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.",
    .options = kOptions,
    .examples = {{"sg-sim step.sg --machine h100-8", "time of the step, and what it waits for"},
                 {"sg-sim step.sg --machine h100-8 --set nvlink=2x --trace step.json",
                  "the same with faster links, and a timeline"}},
    .run = run_sim,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
