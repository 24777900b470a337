#include "tools/run/run_command.h"

#include "librun/check/compare_session.h"
#include "librun/values/data_name.h"
#include "tools/cli/cli_load.h"
#include "tools/cli/cli_targets.h"
#include "tools/cli/cli_write.h"
#include "tools/run/run_backend.h"
#include "tools/run/run_comm.h"
#include "tools/run/run_options.h"
#include "tools/run/run_plan.h"
#include "tools/run/run_report.h"
#include "tools/run/run_shards.h"

namespace sg::cli {
namespace {

constexpr uint32_t kMostRanks = 1 << 16;

// A job that holds some of its ranks cannot run, nor can one of more than there will ever be threads for.
Status require_all_ranks(const Job& job) {
  if (job.world > kMostRanks)
    return Error{ErrorKind::missing,
                 "the job has " + std::to_string(job.world) + " ranks; sg-run runs up to " + std::to_string(kMostRanks),
                 {},
                 "see `world` in the first line of its text (sg-print)"};
  for (uint32_t r = 0; r < job.world; ++r)
    if (!job.program_of(r))
      return Error{
          ErrorKind::cannot_apply,
          "the job has " + std::to_string(job.world) + " ranks, and rank " + std::to_string(r) + " is not in the file",
          {},
          "import all ranks ('rank{r}/step.json'), or --spmd where one rank's capture stands for all"};
  return ok_status();
}

// Before anything runs: whether the files could be written, by writing nothing to each.
Status try_targets(const Args& args) {
  for (std::string_view option : {"outputs", "dump-inputs", "dump-state", "dump-nodes", "profile"})
    if (args.has(option)) SG_TRY(try_to_write(data_file_name(args.text(option), 0, 0), {}));
  return ok_status();
}

Result<SessionReport> run_one_or_two(const Args& args, const Job& job, Communicators comms) {
  SG_ASSIGN(SessionOptions options, session_options(args, ranks_here(comms)));
  SG_ASSIGN(std::unique_ptr<BackendMaker> backends, make_backends(args, job, comms.size()));
  options.rank.backends = backends.get();
  SG_ASSIGN(options.first_step, first_step(args, comms[0]->rank()));
  SG_TRY(try_targets(args));
  if (!args.has("compare")) return run_session(job, comms, options);
  SG_ASSIGN(Job other, read_job(args, args.text("compare")));
  SG_TRY(require_all_ranks(other));
  if (args.has("dry-run")) return run_session(job, comms, options);
  SG_ASSIGN(SessionReport report, run_compared(job, comms, other, options));
  const bool is_second = !report.ranks.empty() && report.ranks[0].comparison;
  if (is_second) args.report().note("loss, time and memory are those of " + args.text("compare"));
  return report;
}

Result<int> run_on(const Args& args, const Job& job, Communicators comms) {
  SG_ASSIGN(SessionReport report, run_one_or_two(args, job, comms));
  for (const RankReport& r : report.ranks)
    for (const std::string& line : r.explained) args.report().note("rank " + std::to_string(r.rank) + ": " + line);
  if (args.has("dry-run")) {
    const int64_t steps = args.number("steps", 1);
    SG_ASSIGN(const RunAnswer answer, gather_answer(comms, std::move(report)));
    if (!answer.writes) return 0;
    if (args.has("json")) SG_TRY(write_text(args, dry_run_json(answer.report, steps) + "\n"));
    else args.report().line(dry_run_text(job, answer.report, steps));
    return 0;
  }
  OutputSet files = std::move(report.written);
  SG_ASSIGN(const std::string profile, stage_profile(args, report, &files));
  SG_ASSIGN(const RunAnswer answer, gather_answer(comms, std::move(report)));
  const bool silent = args.has("quiet") && !args.has("json") && answer.passed;
  if (answer.writes && !silent)
    SG_TRY(stage_text(args, args.has("json") ? run_json(answer.report) + "\n" : run_text(answer.report), &files));
  SG_TRY(files.place());
  SG_TRY(wait_for_all(comms));
  keep_placed(&files);
  if (!profile.empty())
    args.report().note("profile in " + profile + ": open it in ui.perfetto.dev or chrome://tracing");
  return answer.passed ? 0 : 1;
}

// What explains a difference (rank_session.cc) is read, though no option names it.
void keep_expected(const Args& args) {
  if (!args.has("compare")) return;
  for (const std::string& pattern : args.all("inputs"))
    keep_read(recorded_beside(pattern), "is what the capture of the inputs expects");
}

}  // namespace

Result<int> run_step(const Args& args) {
  SG_ASSIGN(std::optional<int> left, follow_launcher(args.text("comm")));
  if (left) return *left;
  SG_TRY(check_run_options(args));
  SG_TRY(check_input_of_processes(args));
  keep_expected(args);
  SG_TRY(check_targets_again(args));
  SG_ASSIGN(Job job, read_job(args, args.input()));
  warn_of_tags(args, job);
  if (args.has("plan")) return print_plans(args, job);
  SG_TRY(require_all_ranks(job));
  warn_of_one_shard(args, job);
  SG_ASSIGN(auto comms, open_communicators(args, job));
  Result<int> code = run_on(args, job, comms);
  return code.ok() ? code : failed_run(comms, std::move(code.error()));
}

}  // namespace sg::cli
