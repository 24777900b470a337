// sg-sim: how long a step takes on a machine, and what it waits for.
//
// A simulated timeline: compute, communicators, copies and the host, with the critical path. Nothing is run.
#include "libgraph/assume.h"
#include "libgraph/sim/report.h"
#include "tools/cli_job.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"machine", 'm', "NAME|FILE", "a built-in machine (--list) or a YAML file", "h100-8"},
    {"set", 's', "KEY=VALUE", "change one number of the machine, or multiply: nvlink=2x", {}, true},
    {"ranks", 0, "N", "ranks of the world instead of the job's, for groups that span it"},
    {"assume", 0, "WHAT", "numbers for symbols: balanced (default), max, or SYMBOL=VALUE", {}, true},
    {"rows", 0, "N", "rows of the critical path", "12"},
    {"trace", 0, "FILE", "write the timeline for Perfetto, JSON"},
    {"list", 0, {}, "the built-in machines, and exit"},
    {"show-machine", 0, {}, "the machine with its changes as YAML, and exit"},
};

Result<int> told(const Status& written) { return written.ok() ? Result<int>(0) : Result<int>(written.error()); }

Result<Machine> machine_of(const Args& args) {
  SG_ASSIGN(Machine machine, find_machine(args.text("machine")));
  for (const std::string& assignment : args.all("set")) SG_TRY(set_machine(&machine, assignment));
  return machine;
}

Result<int> run(const Args& args) {
  if (args.has("list")) return told(write_text(args, list_machines()));
  SimOptions options;
  SG_ASSIGN(options.machine, machine_of(args));
  if (args.has("show-machine")) return told(write_text(args, machine_yaml(options.machine)));
  SG_ASSIGN(Job job, read_job(args, args.input()));
  options.ranks = static_cast<uint32_t>(std::min<int64_t>(args.number("ranks", 0), UINT32_MAX));
  std::vector<std::string> words = args.all("assume");
  SG_ASSIGN(Assumption assumption, parse_assume(std::vector<std::string_view>(words.begin(), words.end())));
  SG_ASSIGN(std::vector<SymbolValues> values, assume_values(job, infer_ranges(job), assumption));
  SG_ASSIGN(Simulation simulation, simulate(job, values, options));
  args.report().phase("simulate", "");
  if (args.has("trace")) SG_TRY(write_whole(args.text("trace"), simulation_trace(job, simulation) + "\n"));
  size_t rows = static_cast<size_t>(args.number("rows", 12));
  SG_TRY(write_text(args, args.has("json") ? simulation_json(job, options.machine, simulation, rows) + "\n"
                                           : print_simulation(job, options.machine, simulation, rows)));
  return leave(args, 0);
}

constexpr Tool kTool = {"sg-sim", "simulate a step on a machine: time, exposed communication, critical path", "[GRAPH]",
                        "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.", 1,
                        true, Writes::report, false, kOptions,
                        {{"sg-sim step.sg --machine h100-8", "what the step waits for"},
                         {"sg-sim step.sg --machine h100-8 --set nvlink=2x --trace step.json", "the same on faster links, for Perfetto"}}, run};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
