#include "tools/sim/sim_command.h"

#include "libgraph/base/human.h"
#include "libgraph/expr/assume.h"
#include "libgraph/plan/liveness.h"
#include "libgraph/sim/measured.h"
#include "libgraph/sim/report.h"
#include "tools/cli/cli_input.h"
#include "tools/cli/cli_load.h"
#include "tools/cli/cli_sizes.h"
#include "tools/cli/cli_write.h"
#include "tools/sim/sim_calibrate.h"

namespace sg::cli {
namespace {

Result<int> told(const Status& written) { return written.ok() ? Result<int>(0) : Result<int>(written.error()); }

Status check_options(const Args& args) {
  if (args.has("ranks") && args.number("ranks", 1) < 1)
    return Error{ErrorKind::usage, "`--ranks` takes a number from 1 up, not 0", {}, "omit it for the job's own"};
  if (args.number("ranks", 1) > UINT32_MAX)
    return Error{ErrorKind::usage, "`--ranks` takes at most 4294967295, not " + args.text("ranks"), {}, {}};
  if (args.has("repeats") && !args.has("calibrate"))
    return Error{ErrorKind::usage, "--repeats needs --calibrate", {}, {}};
  for (const char* option : {"list", "show-machine"})
    if (args.has(option) && args.has("trace"))
      return Error{ErrorKind::usage, std::string("--") + option + " simulates nothing: there is no --trace", {}, {}};
  bool measures = args.has("calibrate") && !args.has("measured");
  for (const char* option : {"trace", "json"})
    if (args.has("calibrate") && args.has(option))
      return Error{ErrorKind::usage,
                   std::string("--calibrate writes a machine: it cannot be combined with --") + option,
                   {},
                   {}};
  if (measures && !args.operands().empty())
    return Error{ErrorKind::usage,
                 "--calibrate measures this machine and needs no graph",
                 {},
                 "--measured FILE fits the machine to a profile of the graph"};
  return ok_status();
}

Result<std::optional<MeasuredTrace>> read_measured(const Args& args) {
  std::optional<MeasuredTrace> none;
  if (!args.has("measured")) return none;
  SG_ASSIGN(Bytes bytes, read_bytes(args.text("measured")));
  SG_ASSIGN(MeasuredTrace trace, MeasuredTrace::read(bytes.name, std::move(bytes.data)));
  return std::optional<MeasuredTrace>(std::move(trace));
}

size_t nodes_in(const Graph& graph, const MeasuredStep& measured) {
  size_t found = 0;
  for (const NodeId n : graph.nodes()) found += measured.nodes.contains(graph.label(n));
  return found;
}

// A profile of sg-run names the nodes of its graph. PyTorch's names none.
Status check_measured(const Args& args, const Job& job, const MeasuredStep& measured) {
  if (measured.nodes.empty()) return ok_status();
  size_t found = 0;
  for (const auto& program : job.programs) {
    found += nodes_in(program->graph, measured);
    for (const auto& nested : program->nested) found += nodes_in(nested->graph, measured);
  }
  if (found == 0)
    return Error{ErrorKind::cannot_apply,
                 "the profile is of another graph: none of its " + plural(measured.nodes.size(), "node") + " is in " +
                     args.input(),
                 {args.text("measured")},
                 "write one with: sg-run " + args.input() + " --profile FILE"};
  if (measured.ranks > job.world)
    args.report().note("the profile has " + plural(measured.ranks, "rank") + ", the job " + std::to_string(job.world));
  return ok_status();
}

// A step that the machine has no memory for is simulated all the same: what is live at once, and its inputs.
void warn_of_memory(const Args& args, const Job& job, const std::vector<SymbolValues>& values, const Machine& machine) {
  const double has = machine.device.memory_gib * 0x1p30;
  int64_t most = 0;
  const Program* worst = nullptr;
  for (size_t i = 0; i < job.programs.size(); ++i) {
    const Program& program = *job.programs[i];
    const auto size_of = [&](StrId symbol) { return values[i].value(symbol); };
    const Liveness live = compute_liveness(program, program.graph, size_of);
    const int64_t needs = live.lower_bound_bytes + live.input_bytes;
    if (worst == nullptr || needs > most) most = needs, worst = &program;
  }
  if (worst == nullptr || has <= 0 || static_cast<double>(most) <= has) return;
  const std::string rank = worst->ranks.empty() ? "each rank" : "rank " + std::to_string(worst->ranks[0]);
  Diagnostics warning;
  warning.warning("memory",
                  rank + " needs " + human_bytes(static_cast<double>(most)) + ", inputs included; a device of " +
                      machine.name + " has " + human_bytes(has),
                  {args.input()}, "sg-remat --peak, sg-chunk and sg-offload make it less");
  args.report().add(warning);
}

// --calibrate --measured: fits the machine so that the simulated step matches the measured one.
Result<int> write_fitted(const Args& args, const Job& job, const std::vector<SymbolValues>& values, SimOptions options,
                         const MeasuredStep& measured) {
  auto on = [&](const Machine& machine) -> Result<ProgramTimeline> {
    options.machine = machine;
    SG_ASSIGN(Simulation simulation, simulate(job, values, options));
    return std::move(simulation.programs[simulation.slowest]);
  };
  const Machine start = options.machine;
  SG_ASSIGN(Machine fitted, fit_machine(start, measured, on));
  SG_ASSIGN(ProgramTimeline timeline, on(fitted));
  fitted.about = start.name + ", fitted to a profile of " + measured.source;
  args.report().line(print_residuals(measured, timeline));
  return told(write_text(args, machine_yaml(fitted)));
}

}  // namespace

Result<int> run_sim(const Args& args) {
  SG_TRY(check_options(args));
  if (args.has("list") || args.has("show-machine"))
    SG_TRY(refuse_json(args, args.has("list") ? "--list prints a table" : "--show-machine prints YAML"));
  if (args.has("list")) return told(write_text(args, list_machines()));
  SimOptions options;
  SG_ASSIGN(options.machine, machine_with(args.text("machine"), args.all("set")));
  if (args.has("show-machine")) return told(write_text(args, machine_yaml(options.machine)));
  if (args.has("calibrate") && !args.has("measured")) {
    SG_ASSIGN(std::string yaml, calibrate_here(args, options.machine));
    return told(write_text(args, yaml));
  }
  SG_ASSIGN(std::optional<MeasuredTrace> measured, read_measured(args));
  SG_ASSIGN(Job job, read_job(args, args.input()));
  if (measured) SG_TRY(check_measured(args, job, measured->step()));
  options.ranks = static_cast<uint32_t>(args.number("ranks", 0));
  if (options.ranks != 0 && !has_group_of_all(job))
    args.report().note("--ranks changes nothing: no group of the job spans all its ranks");
  SG_ASSIGN(std::vector<SymbolValues> values, assumed_values(args, job));
  if (args.has("calibrate")) return write_fitted(args, job, values, options, measured->step());
  SG_ASSIGN(Simulation simulation, simulate(job, values, options));
  warn_of_memory(args, job, values, options.machine);
  args.report().phase("simulate", "");
  const MeasuredTrace* beside = measured ? &*measured : nullptr;
  OutputSet trace;
  if (args.has("trace"))
    SG_TRY(stage_output(args, args.text("trace"), simulation_trace(job, simulation, beside) + "\n", &trace));
  size_t rows = static_cast<size_t>(args.number("rows", 12));
  SG_TRY(write_text(args,
                    args.has("json") ? simulation_json(job, options.machine, simulation, rows, beside) + "\n"
                                     : print_simulation(job, options.machine, simulation, rows) +
                                           (beside ? print_residuals(beside->step(), simulation.worst()) : ""),
                    std::move(trace)));
  return leave(args, 0);
}

}  // namespace sg::cli
