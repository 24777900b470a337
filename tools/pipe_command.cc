#include "tools/pipe_command.h"

#include <algorithm>
#include <regex>

#include "libgraph/base/nearest.h"
#include "libpasses/bundle.h"
#include "tools/cli/cli_complete.h"
#include "tools/cli/cli_load.h"
#include "tools/cli/cli_pass.h"
#include "tools/cli/cli_targets.h"
#include "tools/cli/cli_write.h"

namespace sg::cli {
namespace {

Result<BundledStages> stages_of(const Args& args, Job* job) {
  if (args.has("resume") == args.has("pass"))
    return Error{ErrorKind::usage,
                 "which passes? give --pass once a stage, or --resume",
                 {},
                 "for example --pass clean --pass 'remat --policy full'"};
  if (args.has("resume")) return take_stages(job);
  BundledStages out;
  for (const std::string& words : args.all("pass")) {
    SG_ASSIGN(Stage stage, parse_stage(words));
    out.stages.push_back(std::move(stage));
  }
  return out;
}

Status check_named(const std::string& option, const std::string& name, const std::vector<std::string>& names) {
  if (std::ranges::count(names, canonical_stage(name)) != 0) return ok_status();
  const std::vector<std::string_view> known(names.begin(), names.end());
  return Error{
      ErrorKind::usage, "--" + option + " " + name + ": there is no such stage", {}, nearest_hint(name, known)};
}

Result<std::regex> parse_regex(const std::string& text) {
  try {
    return std::regex(text, std::regex::ECMAScript);
  } catch (const std::regex_error&) {
    return Error{ErrorKind::usage,
                 "--dump-after " + text + " is not a regular expression",
                 {},
                 "for example 'clean|remat'; . is every stage"};
  }
}

// DIR/01-clean.sg
std::string dump_file(const Args& args, std::string stage, size_t number) {
  std::ranges::replace(stage, ':', '-');
  return args.text("dump-to") + "/" + (number < 10 ? "0" : "") + std::to_string(number) + "-" + stage + ".sg";
}

// The stages that will be run.
std::vector<std::string> run_of(const std::vector<std::string>& names, const PipelineOptions& options) {
  std::vector<std::string> out;
  for (const std::string& name : names) {
    if (std::ranges::count(options.disabled, name, canonical_stage) == 0) out.push_back(name);
    if (canonical_stage(options.stop_after) == name) break;
  }
  return out;
}

Status dump_after(const Args& args, const std::vector<std::string>& names, PipelineOptions* options) {
  if (!args.has("dump-after") && !args.has("dump-to")) return ok_status();
  SG_ASSIGN(std::regex wanted, parse_regex(args.has("dump-after") ? args.text("dump-after") : "."));
  if (std::ranges::none_of(names, [&](const std::string& name) { return std::regex_search(name, wanted); })) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    return Error{ErrorKind::usage,
                 "--dump-after " + args.text("dump-after") + " matches no stage name",
                 {},
                 "the stages are " + all};
  }
  std::vector<Target> targets;
  size_t count = 0;
  for (const std::string& name : run_of(names, *options))
    if (++count; std::regex_search(name, wanted)) targets.push_back({"--dump-to", dump_file(args, name, count)});
  SG_TRY(check_targets_again(args, targets));
  options->after_stage = [&args, wanted, number = size_t{0}](const StageReport& report,
                                                             const std::string& bytes) mutable -> Status {
    ++number;
    if (!std::regex_search(report.name, wanted)) return ok_status();
    return write_output(args, dump_file(args, report.name, number), bytes, true);
  };
  return ok_status();
}

}  // namespace

Result<int> run_pipe(const Args& args) {
  SG_ASSIGN(Job job, read_job(args, args.input()));
  SG_ASSIGN(BundledStages bundled, stages_of(args, &job));
  const std::vector<std::string> names = stage_names(bundled.stages);
  PipelineOptions options;
  options.best_effort = bundled.best_effort;
  options.disabled = args.all("disable");
  options.stop_after = args.text("stop-after");
  for (const std::string& name : options.disabled) SG_TRY(check_named("disable", name, names));
  if (args.has("stop-after")) SG_TRY(check_named("stop-after", options.stop_after, names));
  SG_TRY(dump_after(args, names, &options));
  return run_stages(args, std::move(job), std::move(bundled.stages), std::move(options));
}

void complete_stage(const ValueRequest& request) {
  const ShellLine inside = split_shell_line(request.typed, request.typed.size());
  if (request.kind == "PASS" || inside.at == 0) {
    for (const PassInfo* pass : all_passes()) request.offer(std::string(pass->name), pass->summary);
    return;
  }
  const PassInfo* pass = find_pass(inside.words[0]);
  if (request.kind != "STAGE" || pass == nullptr) return;
  const PassTool made(*pass, nullptr);
  const std::string before = request.typed.substr(0, request.typed.size() - inside.words[inside.at].size());
  const Completion answer =
      complete(made.tool, {inside.words.begin() + 1, inside.words.end()}, inside.at - 1, request.line.graph);
  for (const Candidate& c : answer.candidates) {
    auto is_of_all = [&](const Option& o) { return "--" + std::string(o.name) == c.text && o.name != kBestEffort; };
    if (std::ranges::none_of(common_options(), is_of_all)) request.offer(before + c.text, c.help);
  }
  request.out->open = true;  // the stage may continue
}

}  // namespace sg::cli
