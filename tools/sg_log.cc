// sg-log: how a graph was made, and whether the same steps make it again.
#include "libgraph/base/sha256.h"
#include "libgraph/binary/binary.h"
#include "tools/cli/cli_load.h"
#include "tools/cli/cli_write.h"
#include "tools/log_report.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"replay", 'r', {}, "repeat the steps since EARLIER and compare; without EARLIER print a script"},
};

Result<int> run_again(const Args& args, const Job& job, size_t steps) {
  SG_ASSIGN(Job earlier, read_job(args, args.operands()[1]));
  SG_ASSIGN(Replay done, replay(earlier, job, args.threads()));
  SG_TRY(write_text(args, args.has("json") ? replay_json(done) : replay_text(done, steps)));
  return leave(args, done.other.empty() ? 0 : 1);
}

Result<int> run(const Args& args) {
  const bool again = args.operands().size() == 2;
  if (again && !args.has("replay"))
    return Error{ErrorKind::usage, "sg-log takes one graph", {}, "with --replay, a second graph says where to start"};
  if (args.has("replay") && !again) SG_TRY(refuse_json(args, "--replay without EARLIER prints a script"));
  SG_ASSIGN(Job job, read_job(args, args.input()));
  std::vector<HistoryStep> history = history_of(job);
  if (again) return run_again(args, job, history.size());
  if (args.has("replay")) SG_TRY(check_script(history));
  SG_ASSIGN(std::string bytes, write_binary(job));
  const std::string digest = sha256_tag(bytes);
  if (args.has("replay")) SG_TRY(write_text(args, script_of(history, digest)));
  else
    SG_TRY(write_text(
        args, args.has("json") ? log_json(args.input(), job, history, digest) : log_text(job, history, digest)));
  return leave(args, 0);
}

constexpr Tool kTool = {
    .name = "sg-log",
    .summary = "show how a graph was made: tools, options, digests",
    .operands = "[GRAPH] [EARLIER]",
    .details =
        "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.\n"
        "EARLIER is a graph from its history. After --replay: exit 0 for the same bytes, 1 for a different graph.",
    .max_operands = 2,
    .options = kOptions,
    .examples = {{"sg-log step.sg", "the tools and options that made it"},
                 {"sg-clean -q step.sg -o clean.sg && sg-log clean.sg step.sg --replay",
                  "repeat the step; are the bytes the same?"}},
    .run = run,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
