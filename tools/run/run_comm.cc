#include "tools/run/run_comm.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <vector>

#include "librun/comm/comm_inject.h"
#include "librun/comm/comm_plugin.h"
#include "librun/comm/launch_env.h"
#include "librun/meet/comm_star.h"
#include "librun/report_bytes.h"

namespace sg::cli {
namespace {

// The command line of this process; arguments are NUL-terminated.
std::vector<std::string> own_words() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> out;
  for (std::string word; std::getline(file, word, '\0');) out.push_back(word);
  return out;
}

Error become_mpirun(uint32_t world) {
  std::vector<std::string> words = {"mpirun", "--oversubscribe", "-n", std::to_string(world)};
  if (geteuid() == 0) words.push_back("--allow-run-as-root");
  std::vector<std::string> own = own_words();
  words.insert(words.end(), own.begin(), own.end());
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) unsetenv(name);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp("mpirun", arguments.data());
  return Error{
      ErrorKind::missing, "mpirun does not start", {}, "install it (Debian: openmpi-bin), or use --comm local"};
}

// Whether MPI started this process. Slurm's own PMI also sets MPICH's variable.
bool is_of_mpirun() {
  return std::getenv("OMPI_COMM_WORLD_RANK") || (std::getenv("PMI_RANK") && !std::getenv("SLURM_PROCID"));
}

double timeout_of(const Args& args) { return static_cast<double>(args.number("timeout", 600)); }

// How processes with one GPU each find each other: by their launcher, unless --rendezvous says otherwise.
Result<std::vector<std::unique_ptr<Communicator>>> meet_for_nccl(const Args& args, const Job& job) {
  const meet::GetEnv env_word = [](const char* name) { return std::getenv(name); };
  SG_ASSIGN(std::optional<LaunchEnv> env, detect_launch(env_word));
  if (args.has("rendezvous") && !env)
    return Error{ErrorKind::usage,
                 "--rendezvous: the environment does not say which rank this process is",
                 {},
                 "torchrun, srun and mpirun do; by hand, set RANK and WORLD_SIZE"};
  if (!args.has("rendezvous")) {
    if (is_of_mpirun()) return make_communicators("mpi", job, timeout_of(args));
    if (!env || env->world == 1) return make_communicators("local", job, timeout_of(args));
  }
  SG_ASSIGN(meet::MeetingPlace place, meet::find_meeting_place(args.text("rendezvous"), *env, env_word));
  StarOptions options{timeout_of(args), [&](const std::string& line) { args.report().note(line); }};
  SG_ASSIGN(std::unique_ptr<Communicator> comm, make_star_communicator(job, *env, place, options));
  std::vector<std::unique_ptr<Communicator>> out;
  out.push_back(std::move(comm));
  return out;
}

}  // namespace

Result<std::optional<int>> follow_launcher(std::string_view comm) {
  constexpr std::optional<int> kGoOn;
  if (comm != "mpi" || std::getenv("OMPI_COMM_WORLD_RANK") || std::getenv("PMI_RANK")) return kGoOn;
  SG_ASSIGN(std::optional<LaunchEnv> env, detect_launch([](const char* name) { return std::getenv(name); }));
  if (!env || env->family != "torchrun" || env->world == 1) return kGoOn;
  if (std::getenv("LOCAL_WORLD_SIZE") && env->local_world != env->world)
    return Error{ErrorKind::cannot_apply,
                 "torchrun started ranks on several hosts, which MPI cannot join",
                 {},
                 "start them with: mpirun -n " + std::to_string(env->world)};
  if (env->rank != 0) return std::optional<int>(0);
  return become_mpirun(env->world);
}

Status check_input_of_processes(const Args& args) {
  if (args.input() != "-" || args.text("comm") == "local") return ok_status();
  SG_ASSIGN(const std::optional<LaunchEnv> env, detect_launch([](const char* name) { return std::getenv(name); }));
  if (!env || env->world == 1) return ok_status();
  return Error{
      ErrorKind::usage,
      "each of the " + std::to_string(env->world) + " processes reads the graph, and standard input is one's alone",
      {},
      "give a file, not `-`"};
}

Result<std::vector<std::unique_ptr<Communicator>>> open_communicators(const Args& args, const Job& job) {
  std::optional<Link> link;
  if (args.has("link")) {
    SG_ASSIGN(link, parse_link(args.text("link")));
  }
  const bool nccl = args.text("comm") == "nccl";
  SG_ASSIGN(auto comms, nccl ? meet_for_nccl(args, job) : make_communicators(args.text("comm"), job, timeout_of(args)));
  for (std::unique_ptr<Communicator>& comm : comms) {
    if (link) comm = with_link(std::move(comm), *link);
    if (args.has("chaos")) comm = with_chaos(std::move(comm), args.natural("chaos", 0));
  }
  return comms;
}

uint32_t ranks_here(Communicators comms) { return static_cast<uint32_t>(comms[0]->ranks_of_machine().size()); }

Result<RunAnswer> gather_answer(Communicators comms, SessionReport report) {
  const bool passed = report.passed();
  if (comms.size() == comms[0]->world()) return RunAnswer{std::move(report), true, passed};
  SG_ASSIGN(const Texts texts, comms[0]->exchange((passed ? "+" : "-") + report_bytes(report)));
  RunAnswer all{{}, comms[0]->rank() == 0, true};
  std::vector<SessionReport> parts;
  for (const std::string& t : texts) {
    all.passed = all.passed && t.starts_with('+');
    if (!all.writes || t.empty()) continue;
    SG_ASSIGN(SessionReport part, report_of_bytes(std::string_view(t).substr(1)));
    parts.push_back(std::move(part));
  }
  all.report = joined_reports(std::move(parts));
  return all;
}

Status wait_for_all(Communicators comms) {
  if (comms.size() == comms[0]->world()) return ok_status();
  SG_TRY(comms[0]->exchange("placed"));
  return ok_status();
}

Result<int> failed_run(Communicators comms, Error error) {
  comms[0]->abort(error);
  if (comms[0]->speaks_of_failure()) return error;
  return static_cast<int>(error.kind);
}

}  // namespace sg::cli
