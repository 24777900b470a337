#include "tools/cli/cli_pass.h"

#include <unistd.h>

#include <utility>

#include "libgraph/base/human.h"
#include "libgraph/base/joined.h"
#include "libgraph/base/json.h"
#include "libgraph/base/nearest.h"
#include "libpasses/bundle.h"
#include "tools/cli/cli_load.h"
#include "tools/cli/cli_words.h"
#include "tools/cli/cli_write.h"

namespace sg::cli {
namespace {

Stage stage_of(const PassInfo& pass, const Args& args) {
  Stage out{&pass, {}};
  for (const PassOption& option : pass.options)
    if (args.has(option.name))
      for (const std::string& value : args.all(option.name)) out.options.add(std::string(option.name), value);
  return out;
}

// Saves what is needed to reproduce an internal error in the current folder, and says how. Files of earlier failures
// are kept.
void keep_failure(const FailedStage& failed, Error* error) {
  const std::string name = "sg-" + std::string(failed.rest[0].pass->name) + "-failed";
  std::string file = name + ".sg";
  for (int i = 2; ::access(file.c_str(), F_OK) == 0; ++i) file = name + "-" + std::to_string(i) + ".sg";
  Result<std::string> bundle = write_bundle(failed);
  if (!bundle.ok() || !write_whole(file, *bundle).ok()) return;
  error->message += "; sg-pipe --resume " + file + " shows it again";
}

std::string nodes_text(const StageReport& report) {
  if (report.nodes_before == report.nodes_after) return plural(report.nodes_after, "node");
  return std::to_string(report.nodes_before) + " -> " + plural(report.nodes_after, "node");
}

void say(const Args& args, const StageReport& report) {
  args.report().phase(report.name, report.change.summary, report.seconds);
  args.report().phase("verify", "what sg-" + report.name + " left");
  if (args.has("json")) return;  // the document has all of it
  const std::string& plan = report.change.plan;
  if (!plan.empty()) args.report().line(plan.substr(0, plan.size() - 1));
  args.report().line("sg-" + report.name + ": " + report.change.summary + " (" + nodes_text(report) + ")");
}

// One object per stage. Without times, so that equal work gives equal bytes.
std::string stages_json(const std::vector<StageReport>& reports) {
  JsonWriter json;
  json.begin_array();
  for (const StageReport& r : reports) {
    json.begin_object().member("name", r.name).member("changed", r.change.changed).member("summary", r.change.summary);
    json.member("nodes_before", r.nodes_before).member("nodes_after", r.nodes_after);
    if (r.left_out) json.member("left_out", true);
    if (!r.change.plan_json.empty()) json.key("plan").raw(r.change.plan_json);
    json.end_object();
  }
  return json.end_array().take();
}

}  // namespace

PassTool::PassTool(const PassInfo& pass, Result<int> (*run)(const Args&)) : name("sg-" + std::string(pass.name)) {
  tool = {
      .name = name,
      .summary = pass.summary,
      .operands = "[GRAPH]",
      .details = pass.details,
      .writes = Writes::graph,
      .options = pass.options,
      .examples = {pass.examples[0], pass.examples[1]},
      .run = run,
  };
  if (tool.details.empty())
    tool.details = "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.";
}

Result<Stage> parse_stage(const std::string& text) {
  SG_ASSIGN(std::vector<std::string> words, split_words(text, "the stage `" + text + "`"));
  std::vector<std::string_view> names;
  for (const PassInfo* pass : all_passes()) names.push_back(pass->name);
  if (words.empty()) return Error{ErrorKind::usage, "a stage is empty", {}, "for example --pass 'remat --policy full'"};
  const PassInfo* pass = find_pass(words[0]);
  if (pass == nullptr) {
    std::string hint = nearest_hint(words[0], names);
    if (hint.empty()) hint = "the passes are " + joined(names, ", ");
    return Error{ErrorKind::usage, "there is no pass `" + words[0] + "`", {}, std::move(hint)};
  }
  const PassTool made(*pass, nullptr);
  Reporter silent(made.name);
  words.erase(words.begin());
  Result<Args> args = parse_options(made.tool, words, silent);
  if (!args.ok())
    return Error{args.error().kind, "the stage `" + text + "`: " + args.error().message, {}, args.error().hint};
  Stage stage = stage_of(*pass, *args);
  stage.best_effort = args->has(kBestEffort);
  size_t own = stage.best_effort ? 1 : 0;  // given() has one entry per value
  for (const auto& [name, values] : stage.options.values()) own += values.size();
  if (!args->operands().empty() || args->given().size() != own)
    return Error{ErrorKind::usage,
                 "the stage `" + text + "` takes options of the pass and --best-effort alone",
                 {},
                 "files and what all tools share belong to sg-pipe"};
  return stage;
}

Result<int> run_stages(const Args& args, Job job, std::vector<Stage> stages, PipelineOptions options) {
  options.best_effort |= args.has("best-effort");
  options.explain = args.has("explain");
  options.threads = args.threads();
  options.version = kVersion;
  Diagnostics notes;
  options.progress = [&](const std::string& stage, const std::string& what) { args.report().progress(stage, what); };
  options.after_stage = [&, then = std::move(options.after_stage)](const StageReport& report,
                                                                   const std::string& bytes) -> Status {
    args.report().add(std::exchange(notes, Diagnostics()));
    say(args, report);
    return then ? then(report, bytes) : ok_status();
  };
  std::optional<FailedStage> failed;
  auto reports = run_pipeline(&job, std::move(stages), options, &notes, &failed);
  args.report().add(notes);
  if (!reports.ok()) {
    if (failed) keep_failure(*failed, &reports.error());
    return reports.error();
  }
  SG_TRY(write_job(args, job, stages_json(*reports)));
  return leave(args, 0);
}

Result<int> run_pass(const PassInfo& pass, const Args& args) {
  SG_ASSIGN(Job job, read_job(args, args.input()));
  return run_stages(args, std::move(job), {stage_of(pass, args)}, {});
}

}  // namespace sg::cli
