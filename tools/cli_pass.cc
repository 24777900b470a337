#include "tools/cli_pass.h"

#include "libpasses/pipeline.h"
#include "tools/cli_job.h"

namespace sg::cli {
namespace {

// The tool that is running: a table row has room for a function without a name for its pass.
const PassInfo* g_pass = nullptr;

Stage stage_of(const Args& args) {
  Stage out{g_pass, {}};
  for (const PassOption& option : g_pass->options)
    if (args.has(option.name))
      for (const std::string& value : args.all(option.name)) out.options.add(std::string(option.name), value);
  return out;
}

// What is needed to see the bug again, beside where the user works.
std::string keep_failure(const FailedStage& failed, const Args& args) {
  const std::string file = args.tool().name.data() + std::string("-input.sg");
  if (!write_whole(file, failed.input).ok()) return {};
  return file;
}

void say(const Args& args, const StageReport& report) {
  const Change& change = report.change;
  if (!change.plan.empty() && !args.has("json")) args.report().line(change.plan.substr(0, change.plan.size() - 1));
  std::string nodes = report.nodes_before == report.nodes_after
                          ? counted(report.nodes_after, "node")
                          : std::to_string(report.nodes_before) + " -> " + counted(report.nodes_after, "node");
  args.report().line(std::string(args.tool().name) + ": " + change.summary + " (" + nodes + ")");
  if (!change.plan_json.empty() && args.has("json")) args.report().line(change.plan_json);
}

Result<int> run(const Args& args) {
  SG_ASSIGN(Job job, read_job(args, args.input()));
  PipelineOptions options;
  options.best_effort = args.has("best-effort");
  options.explain = args.has("explain");
  options.threads = args.threads();
  options.version = kVersion;
  Diagnostics notes;
  std::optional<FailedStage> failed;
  auto reports = run_pipeline(&job, {stage_of(args)}, options, &notes, &failed);
  args.report().add(notes);
  if (!reports.ok()) {
    if (failed)
      if (std::string file = keep_failure(*failed, args); !file.empty()) reports.error().hint = "the input that shows it is in " + file;
    return reports.error();
  }
  for (const StageReport& report : *reports) {
    args.report().phase(report.name, report.change.summary);
    say(args, report);
  }
  SG_TRY(write_job(args, job));
  return leave(args, 0);
}

}  // namespace

int pass_main(const PassInfo& pass, int argc, char** argv) {
  g_pass = &pass;
  static const std::string name = "sg-" + std::string(pass.name);
  static std::vector<Option> options;
  for (const PassOption& o : pass.options) options.push_back({o.name, o.letter, o.argument, o.help, o.fallback, o.repeated});
  Tool tool = {name, pass.summary, "[GRAPH]", pass.details, 1, true, Writes::graph, false, options,
               {{pass.examples[0][0], pass.examples[0][1]}, {pass.examples[1][0], pass.examples[1][1]}}, run};
  if (tool.details.empty()) tool.details = "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.";
  return main(tool, argc, argv);
}

}  // namespace sg::cli
