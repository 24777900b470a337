#include "tools/diff_command.h"

#include <unistd.h>

#include <optional>

#include "libgraph/base/parallel.h"
#include "libgraph/diff/diff_text.h"
#include "libgraph/expr/assume.h"
#include "libgraph/sim/simulate.h"
#include "tools/cli/cli_load.h"
#include "tools/cli/cli_report.h"
#include "tools/cli/cli_terminal.h"
#include "tools/cli/cli_write.h"

namespace sg::cli {
namespace {

Error usage(std::string message, std::string hint) {
  return {ErrorKind::usage, std::move(message), {}, std::move(hint)};
}

Result<DiffOptions> diff_options(const Args& args, std::vector<std::string>* ignored) {
  std::string list;
  for (const std::string& word : args.all("ignore")) list += (list.empty() ? "" : ",") + word;
  SG_ASSIGN(DiffOptions options, parse_ignore(list));
  if (options.ignore_name) ignored->push_back("name");
  if (options.ignore_meta) ignored->push_back("meta");
  if (options.ignore_order) ignored->push_back("order");
  if (options.ignore_loc) ignored->push_back("loc");
  return options;
}

Status check_options(const Args& args) {
  if (args.operands().size() != 2)
    return usage("sg-diff compares two graphs", "sg-diff A B; one of them may be - for standard input");
  std::string shapes;
  for (const char* name : {"stat", "name-only", "side"})
    if (args.has(name)) shapes += (shapes.empty() ? "--" : " and --") + std::string(name);
  if (shapes.find(" and ") != std::string::npos) return usage(shapes + " exclude each other", "choose one");
  const bool is_for_programs = args.has("json") || args.text("format") != "text";
  if (is_for_programs && !shapes.empty())
    return usage(shapes + " is a form of the text report", "leave it out with --json and --format");
  if (args.has("json") && args.has("format") && args.text("format") != "json")
    return usage("--json and --format=" + args.text("format") + " exclude each other", "choose one");
  return ok_status();
}

struct Cost {
  Stats stats;
  std::optional<StepTime> time;  // none: no machine, or unbounded sizes
};

// Sizes as in sg-stat: assumed if every symbol is bounded; else those without a number count as unknown.
Cost cost_of(const Job& job, const std::optional<Machine>& machine) {
  Cost out;
  StatOptions options;
  Result<std::vector<SymbolValues>> assumed = assume_values(job, infer_ranges(job), Assumption());
  if (assumed.ok()) options.sizes = sizes_of(job, *assumed);
  out.stats = collect_stats(job, options);
  if (!machine || !assumed.ok() || job.programs.empty()) return out;
  SimOptions simulated;
  simulated.machine = *machine, simulated.events = false;
  if (Result<Simulation> simulation = simulate(job, *assumed, simulated); simulation.ok())
    out.time = StepTime{machine->name, simulation->worst().makespan_us, simulation->worst().exposed_total_us()};
  return out;
}

Result<std::optional<Machine>> machine_of(const Args& args) {
  if (args.text("machine") == "none") return std::optional<Machine>();
  SG_ASSIGN(Machine machine, find_machine(args.text("machine")));
  return std::optional(std::move(machine));
}

std::vector<CostRow> costs_of(const Args& args, const std::optional<Machine>& machine, const Job& a, const Job& b) {
  Cost costs[2];
  parallel_for(2, args.threads(), [&](size_t i) { costs[i] = cost_of(i == 0 ? a : b, machine); });
  std::vector<CostRow> rows = compare_costs(costs[0].stats, costs[1].stats);
  if (costs[0].time && costs[1].time)
    for (CostRow& row : compare_times(*costs[0].time, *costs[1].time)) rows.push_back(std::move(row));
  args.report().phase("cost", "");
  return rows;
}

// By default only on a terminal, and only for reports on standard output.
bool wants_color(const Args& args) {
  const std::string when = args.text("color");
  return when == "always" || (output_of(args) == "-" && shows_color(STDOUT_FILENO, when));
}

// Where A's texts define what the places name, found as for findings of the verifier.
std::vector<TextPlace> places_in(const std::vector<SourceText>& texts, const std::vector<std::string>& places) {
  std::vector<Diagnostic> asked(places.size());
  for (size_t i = 0; i < places.size(); ++i) asked[i].where.path = places[i];
  place_in_texts(texts, &asked);
  std::vector<TextPlace> out;
  for (const Diagnostic& d : asked) out.push_back({d.where.file, uri_of(d.where.file), d.where.line});
  return out;
}

std::string report_of(const Args& args, const JobDiff& diff, const DiffTextOptions& options) {
  std::string format = args.has("json") ? "json" : args.text("format");
  if (format == "json") return diff_json(diff, options) + "\n";
  if (format == "github") return diff_github(diff, options);
  if (format == "junit") return diff_junit(diff, options);
  if (format == "sarif") return diff_sarif(diff, options) + "\n";
  if (args.has("stat")) return print_diff_stat(diff, options);
  if (args.has("name-only")) return print_diff_names(diff);
  return args.has("side") ? print_diff_side_by_side(diff, options) : print_diff(diff, options);
}

}  // namespace

Result<int> diff_operands(const Args& args) {
  SG_TRY(check_options(args));
  DiffTextOptions text;
  SG_ASSIGN(DiffOptions options, diff_options(args, &text.ignored));
  SG_ASSIGN(const std::optional<Machine> machine, machine_of(args));
  SG_ASSIGN(Loaded a, read_loaded(args, args.operands()[0]));
  SG_ASSIGN(Job b, read_job(args, args.operands()[1]));
  JobDiff diff = diff_jobs(a.job, b, options);
  args.report().phase("compare", "");
  if (!args.has("no-cost") && !args.has("name-only") && !diff.is_same()) {
    text.costs = costs_of(args, machine, a.job, b);
  }
  auto name = [](const std::string& operand) { return operand == "-" ? std::string("<stdin>") : operand; };
  text.name_a = name(args.operands()[0]), text.name_b = name(args.operands()[1]), text.uri_a = uri_of(text.name_a);
  text.hunks.context = static_cast<size_t>(std::min<int64_t>(args.number("context", 2), 1000));
  text.hunks.full = args.has("full");
  text.color = wants_color(args), text.columns = terminal_columns().value_or(160);
  text.find_places = [&a](const std::vector<std::string>& places) { return places_in(a.texts, places); };
  SG_TRY(write_text(args, report_of(args, diff, text), {}, text.color ? Colors::used : Colors::none));
  return leave(args, diff.is_same() ? 0 : 1);
}

}  // namespace sg::cli
