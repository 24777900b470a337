#include "tools/recipe/session.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <tuple>

#include "libgraph/base/human.h"
#include "libgraph/sim/machine.h"
#include "libgraph/sim/machine_file.h"
#include "tools/cli/cli_targets.h"

namespace sg::recipe {
namespace {

constexpr size_t kShownMistakes = 50, kAllMistakes = 10'000;

std::string seconds_text(double seconds) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.2f s", seconds);
  return buffer;
}

void tell(const cli::Args& args, const Step& step, const StepResult& r) {
  for (const Diagnostic& d : r.notes) args.report().add(d);
  std::string line = left_cell(step.name, 24) + left_cell(state_name(r.state), 9) + seconds_text(r.seconds);
  if (!r.summary.empty()) line += "  " + r.summary;
  if (r.blessed) line += "  (new golden " + step.expect + ")";
  args.report().line(line);
  if (!r.said.empty()) args.report().line(r.said.substr(0, r.said.find_last_not_of('\n') + 1));
  if (r.error) {
    Error error = *r.error;
    error.message = step.name + ": " + error.message;
    args.report().error(error);
  }
  for (Diagnostic d : r.failed_checks) {
    d.message = step.name + ": " + d.message;
    args.report().add(d);
  }
}

// Each problem once, as variants of a matrix repeat the same mistakes, and in the order of the text.
Diagnostics each_once(const Diagnostics& problems) {
  Diagnostics out(kShownMistakes);
  std::set<std::string> said;
  std::vector<Diagnostic> ordered = problems.list();
  std::ranges::stable_sort(ordered, {},
                           [](const Diagnostic& d) { return std::tie(d.where.file, d.where.line, d.where.column); });
  for (const Diagnostic& d : ordered)
    if (said.insert(print_location(d.where) + "\n" + d.message).second) out.add(d);
  return out;
}

// What the command writes beside its own output.
std::vector<cli::Target> written_beside(const Plan& plan, const cli::Args& args) {
  std::vector<cli::Target> out;
  for (const Step& s : plan.steps) {
    if (args.operands()[0] == "run" && !s.output.empty()) out.push_back({"`" + s.name + "`", s.output});
    if (args.has("bless") && !s.expect.empty()) out.push_back({"--bless", s.expect});
  }
  return out;
}

}  // namespace

std::string_view state_name(StepState state) {
  switch (state) {
    case StepState::waiting: return "-";
    case StepState::made: return "made";
    case StepState::cached: return "cached";
    case StepState::failed: return "failed";
    case StepState::skipped: return "skipped";
  }
  return "?";
}

Status report_mistakes(const cli::Args& args, const Diagnostics& problems, const std::string& file) {
  const auto is_error = [](const Diagnostic& d) { return d.severity == Severity::error; };
  const auto is_of_recipe = [&](const Diagnostic& d) { return is_error(d) && !d.where.is_option; };
  const bool is_usage = std::ranges::none_of(problems.list(), is_of_recipe);
  const ErrorKind kind = is_usage ? ErrorKind::usage : ErrorKind::unreadable;
  const auto first = std::ranges::find_if(problems.list(), is_error);
  if (problems.error_count() == 1 && first != problems.list().end() && first->where.line == 0) {
    for (const Diagnostic& d : problems.list())
      if (!is_error(d)) args.report().add(d);
    return Error{kind, first->message, first->where, first->hint};
  }
  args.report().add(problems);
  if (!problems.has_errors()) return ok_status();
  return Error{
      kind, (is_usage ? "the command line" : file) + " has " + plural(problems.error_count(), "mistake"), {}, {}};
}

void keep_files(const Recipe& recipe, const Plan& plan, bool makes_goldens) {
  const std::string what = "the recipe reads";
  for (const std::string& file : recipe.files) cli::keep_read(file, what);
  for (const Step& s : plan.steps) {
    for (const std::string& source : s.sources) cli::keep_read(source, what);
    for (const OptionValue& o : s.options)
      if (o.is_path()) cli::keep_read(o.path(), what);
    for (const RunCheck& r : s.runs)
      for (const OptionValue& o : r.options)
        if (o.is_path()) cli::keep_read(o.path(), what);
    if (is_machine_file(s.machine)) cli::keep_read(s.machine, what);
    if (!s.expect.empty() && !makes_goldens) cli::keep_read(s.expect, what);
  }
}

Result<Session> open_session(const cli::Args& args) {
  if (args.operands().size() < 2)
    return Error{ErrorKind::usage, "which recipe?", {}, "sg-recipe " + args.operands()[0] + " recipe.yaml"};
  Session session;
  session.file = args.operands()[1] == "-" ? kStdin : args.operands()[1];
  Diagnostics problems(kAllMistakes);
  Recipe recipe = read_recipe(session.file, &problems);
  std::vector<Variant> variants = expand(recipe, args.all("set"), &problems);
  ToolTable tools;
  session.plan = make_plan(variants, &tools, &problems);
  check_values(session.plan, &problems);
  SG_TRY(report_mistakes(args, each_once(problems), session.file));
  keep_files(recipe, session.plan, args.has("bless"));
  SG_TRY(cli::check_targets_again(args, written_beside(session.plan, args)));
  SG_ASSIGN(int64_t limit, args.bytes("cache-size"));
  std::string folder = args.has("no-cache") ? "" : args.has("cache") ? args.text("cache") : Cache::usual_folder();
  session.cache = Cache(folder, static_cast<uint64_t>(limit));
  return session;
}

std::vector<StepResult> execute(const cli::Args& args, Session* session, ExecuteOptions options,
                                const std::vector<uint32_t>& wanted) {
  options.threads = args.threads();
  options.pipes = args.has("pipes");
  Executor executor(session->plan, &session->cache, options,
                    [&](size_t i, const StepResult& r) { tell(args, session->plan.steps[i], r); });
  return executor.run(wanted);
}

int exit_code_of(const std::vector<StepResult>& results) {
  bool all_held = true;
  for (const StepResult& r : results) {
    if (r.error) return static_cast<int>(r.error->kind);
    all_held &= r.failed_checks.empty();
  }
  return all_held ? 0 : 1;
}

}  // namespace sg::recipe
