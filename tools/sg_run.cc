// sg-run: execute a step on its ranks.
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "librun/comm_plugin.h"
#include "librun/data_name.h"
#include "librun/session.h"
#include "tools/cli_job.h"
#include "tools/run_comm.h"
#include "tools/run_report.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"comm", 0, "local|mpi", "ranks are threads of this process, or processes that mpirun started", "local"},
    {"inputs", 'i', "FILE", "values of the graph's inputs, by name or FQN; {r} stands for the rank, {step} for the step"},
    {"seed", 0, "N", "seed of the random ops", "0"},
    {"outputs", 0, "FILE", "write the outputs: of each step where the name holds {step}, else of the last"},
    {"expect", 0, "FILE", "hold the outputs against these; beyond the tolerance is exit 1"},
    {"rtol", 0, "R", "relative tolerance of --expect; the default goes by the narrowest float on the way"},
    {"atol", 0, "A", "absolute tolerance of --expect"},
    {"bitwise", 0, {}, "--expect holds to the bit"},
    {"watch", 0, "WHAT", "end at the first node that gives nan, inf, or nan,inf"},
    {"dump-nodes", 0, "FILE", "write the results of the nodes that --nodes names"},
    {"nodes", 0, "PATTERN", "names of results, * is any text", {}, true},
    {"profile", 0, "FILE", "write when each node ran, for Perfetto"},
    {"steps", 'n', "N", "run this many steps", "1"},
    {"threads", 't', "N", "threads of all ranks together; at least one a rank; 0 = the cores of this machine", "0"},
    {"numerics", 0, "fast|strict|f64", "strict: same bits on every machine; f64: the double oracle", "fast"},
    {"memory-limit", 0, "SIZE", "refuse what needs more than this beyond its inputs, a rank: 512MiB, 2GiB"},
};

Numerics numerics_of(const std::string& word) {
  return word == "strict" ? Numerics::strict : word == "f64" ? Numerics::f64 : Numerics::fast;
}

Result<SessionOptions> session_options(const Args& args, uint32_t ranks) {
  SessionOptions options;
  options.inputs = args.text("inputs");
  options.outputs = args.text("outputs");
  options.expect = args.text("expect");
  options.tolerance.bitwise = args.has("bitwise");
  SG_ASSIGN(options.tolerance.rtol, number_option(args, "rtol"));
  SG_ASSIGN(options.tolerance.atol, number_option(args, "atol"));
  options.watch = args.text("watch");
  options.dump = args.text("dump-nodes");
  options.dump_names = args.has("nodes") ? args.all("nodes") : std::vector<std::string>{"*"};
  options.profile = args.has("profile");
  options.steps = static_cast<uint64_t>(std::max<int64_t>(args.number("steps", 1), 1));
  options.rank.numerics = numerics_of(args.text("numerics"));
  options.rank.seed = static_cast<uint64_t>(args.number("seed", 0));
  int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  int64_t threads = args.number("threads", 0);
  options.rank.threads = static_cast<int>(std::max<int64_t>(1, (threads > 0 ? threads : cores) / std::max(ranks, 1u)));
  if (args.has("memory-limit")) {
    SG_ASSIGN(options.rank.memory_limit, parse_bytes(args.text("memory-limit")));
  }
  return options;
}

Result<int> run_on(const Args& args, const Job& job, Communicators comms) {
  SG_ASSIGN(SessionOptions options, session_options(args, ranks_here(comms)));
  SG_ASSIGN(SessionReport report, run_session(job, comms, options));
  if (args.has("profile")) SG_TRY(write_whole(data_file_name(args.text("profile"), comms[0]->rank(), 0), report.profile + "\n"));
  std::string text = args.has("json") ? run_json(report) + "\n" : run_text(report);
  SG_ASSIGN(RunAnswer answer, gather_answer(comms, std::move(text), report.passed()));
  if (answer.writes) SG_TRY(write_text(args, answer.text));
  return answer.passed ? 0 : 1;
}

Result<int> run(const Args& args) {
  SG_ASSIGN(Job job, read_job(args, args.input()));
  SG_TRY(require_all_ranks(job));
  SG_ASSIGN(auto comms, make_communicators(args.text("comm"), job));
  Result<int> code = run_on(args, job, comms);
  return code.ok() ? code : failed_run(comms, std::move(code.error()));
}

constexpr Tool kTool = {"sg-run", "execute a step on its ranks", "[GRAPH]",
                        "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.", 1,
                        true, Writes::report, false, kOptions,
                        {{"sg-run step.sg --inputs 'rank{r}/inputs.safetensors'", "run it on the inputs of each rank"},
                         {"sg-run step.sg --inputs in.safetensors --outputs out.safetensors", "keep what it computes"}}, run};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
