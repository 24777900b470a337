#include "tools/view/commands.h"

#include <unistd.h>

#include <optional>

#include "libgraph/base/escape.h"
#include "libgraph/sim/report.h"
#include "libgraph/view/view_formats.h"
#include "tools/cli/cli_load.h"
#include "tools/cli/cli_sizes.h"
#include "tools/cli/cli_write.h"
#include "tools/view/page.h"

namespace sg::cli {
namespace {

// Escapes `<`, so that the data cannot end the script element that contains it.
std::string escaped_data(std::string_view json) {
  std::string out;
  out.reserve(json.size() + json.size() / 64);
  for (char c : json) {
    if (c == '<') out += "\\u003c";
    else out += c;
  }
  return out;
}

std::string page_of(const ViewSources& from, const std::string& json) {
  std::string_view page = view_page();
  size_t title = page.find("{{title}}"), data = page.find("{{data}}");
  std::string out(page.substr(0, title));
  out += escaped_markup((from.name_before.empty() ? "" : from.name_before + " \xE2\x86\x92 ") + from.name);
  out += page.substr(title + 9, data - title - 9);
  out += escaped_data(json);
  out += page.substr(data + 8);
  return out;
}

std::string name_of_operand(const std::string& operand) { return operand == "-" ? "<stdin>" : operand; }

std::string written_as(const std::string& format, const Job& job, const ViewSources& from) {
  if (format == "dot") return view_dot(job);
  if (format == "model-explorer") return view_model_explorer(job) + "\n";
  if (format == "perfetto") return simulation_trace(job, *from.simulation) + "\n";
  if (format == "svg") return view_svg(job, from);
  std::string json = view_json(job, from);
  return format == "json" ? json + "\n" : page_of(from, json);
}

Error usage(std::string message, std::string hint) {
  return {ErrorKind::usage, std::move(message), {}, std::move(hint)};
}

Result<std::string> format_of(const Args& args) {
  std::string format = args.text("format");
  if (args.has("json") && args.has("format") && format != "json")
    return usage("--json and --format=" + format + " exclude each other", "choose one");
  if (args.has("json")) format = "json";
  bool two = args.operands().size() == 2;
  if (!two && args.has("ignore")) return usage("--ignore is for two graphs", "give another graph to compare with");
  if (two && format != "html" && format != "json")
    return usage("--format=" + format + " shows one graph", "give one operand, or --format=html");
  if (format == "html" && output_of(args) == "-" && ::isatty(STDOUT_FILENO) != 0)
    return usage("an HTML page to a terminal is refused", "write it to a file: -o step.html");
  return format;
}

Result<JobDiff> diff_of(const Args& args, const Job& before, const Job& job) {
  std::string list;
  for (const std::string& word : args.all("ignore")) list += (list.empty() ? "" : ",") + word;
  SG_ASSIGN(DiffOptions options, parse_ignore(list));
  return diff_jobs(before, job, options);
}

struct Timed {
  std::vector<SymbolValues> values;
  Simulation simulation;
};

// What depends on a symbol without a number counts as nothing, and the page says so.
Result<Timed> time_job(const Args& args, const Job& job, const SimOptions& sim) {
  SG_ASSIGN(auto assumed, assumed_values_if_known(args, job));
  Timed out;
  out.values = assumed ? std::move(*assumed) : std::vector<SymbolValues>(job.programs.size());
  SG_ASSIGN(out.simulation, simulate(job, out.values, sim));
  return out;
}

}  // namespace

Result<int> view_operands(const Args& args) {
  SG_ASSIGN(std::string format, format_of(args));
  ViewSources from;
  bool two = args.operands().size() == 2;
  std::optional<Job> before;
  if (two) {
    SG_ASSIGN(before, read_job(args, args.operands()[0]));
    from.name_before = name_of_operand(args.operands()[0]);
  }
  std::string operand = two ? args.operands()[1] : args.input();
  from.name = name_of_operand(operand);
  SG_ASSIGN(Job job, read_job(args, operand));

  SimOptions sim;
  SG_ASSIGN(sim.machine, machine_with(args.text("machine"), args.all("set")));
  from.machine = sim.machine.name;
  SG_ASSIGN(Timed timed, time_job(args, job, sim));
  from.values = &timed.values;
  from.simulation = &timed.simulation;
  args.report().phase("simulate", "");

  std::optional<JobDiff> diff;
  Timed timed_before;
  if (two) {
    SG_ASSIGN(timed_before, time_job(args, *before, sim));
    from.before = {&*before, &timed_before.values, &timed_before.simulation};
    SG_ASSIGN(diff, diff_of(args, *before, job));
    from.diff = &*diff;
    args.report().phase("compare", "");
  }
  SG_TRY(write_text(args, written_as(format, job, from)));
  return leave(args, 0);
}

}  // namespace sg::cli
