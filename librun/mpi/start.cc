#include "librun/mpi/start.h"

#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "librun/comm/launch_env.h"

namespace sg {
namespace {

constexpr double kAtLeast_s = 15;  // a busy machine may need seconds to start all ranks, however short `timeout_s` is
// Rank 0 reports first; mpirun then has time to end the others.
constexpr std::chrono::seconds kSpeakFirst{5};

}  // namespace

Status start_mpi() {
  SG_ASSIGN(std::optional<LaunchEnv> env, detect_launch([](const char* name) { return std::getenv(name); }));
  if (std::getenv("OMPI_COMM_WORLD_RANK")) {
    const pid_t parent = getppid();  // mpirun; 1 where a container runs nothing else
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) return Error{ErrorKind::rank_failed, "mpirun has ended", {}, {}};
  }
  int up = 0, have = 0;
  MPI_Initialized(&up);
  if (!up && MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &have) != MPI_SUCCESS)
    return Error{ErrorKind::missing, "MPI does not start", {}, {}};
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (env && env->world != static_cast<uint32_t>(size))
    return Error{ErrorKind::cannot_apply,
                 "the environment of " + env->family + " mentions " + std::to_string(env->world) +
                     " ranks, MPI started " + std::to_string(size),
                 {},
                 "start it with: mpirun -n " + std::to_string(env->world)};
  return ok_status();
}

StartGuard::StartGuard(double timeout_s) {
  if (timeout_s > 0) thread_ = std::thread([this, timeout_s] { watch(std::max(timeout_s, kAtLeast_s)); });
}

StartGuard::~StartGuard() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StartGuard::watch(double timeout_s) {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  std::chrono::duration<double> patience(timeout_s);
  if (rank && std::string_view(rank) != "0") patience += kSpeakFirst;
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, patience, [&] { return over_; })) return;
  std::fprintf(
      stderr,
      "%s: error: MPI did not start within %g s: not all ranks came\n"
      "%s: hint: a process of them is stopped, or the machine is out of memory; a longer --timeout helps where "
      "starting just takes long\n",
      program_invocation_short_name, timeout_s, program_invocation_short_name);
  _exit(static_cast<int>(ErrorKind::rank_failed));
}

}  // namespace sg
