#include "tools/run/run_backend.h"

namespace sg::cli {
namespace {

// Whether all ranks run one program, and so launch the same collectives in the same order.
bool is_one_program(const Job& job) {
  if (job.programs.size() != 1) return false;
  const std::vector<uint32_t>& ranks = job.programs[0]->ranks;
  return ranks.empty() || ranks.size() == job.world;
}

}  // namespace

Status check_backend(const Args& args) {
  const bool nccl = args.text("comm") == "nccl", cuda = args.text("backend") == "cuda";
  if (nccl && !cuda)
    return Error{ErrorKind::usage, "--comm nccl needs --backend cuda", {}, "--comm local or mpi for CPUs"};
  if (args.has("deterministic") && !nccl)
    return Error{ErrorKind::usage,
                 "--deterministic is for --comm nccl",
                 {},
                 "the other communicators always sum in the order of the ranks"};
  if (args.has("rendezvous") && !nccl)
    return Error{
        ErrorKind::usage, "--rendezvous is for --comm nccl", {}, "mpirun brings the ranks of --comm mpi together"};
  if (cuda && (args.has("chaos") || args.has("link")))
    return Error{ErrorKind::usage, "--chaos and --link are for ranks on CPUs", {}, "--backend cpu"};
  if (cuda && args.text("numerics") != "fast")
    return Error{ErrorKind::usage,
                 "--numerics " + args.text("numerics") + " is what CPUs do",
                 {},
                 "--backend cpu, or --numerics fast"};
  return ok_status();
}

Result<std::unique_ptr<BackendMaker>> make_backends(const Args& args, const Job& job, size_t ranks_of_process) {
  if (args.text("backend") == "cpu") return std::unique_ptr<BackendMaker>();
  BackendOptions options;
  options.job = &job;
  options.nccl = args.text("comm") == "nccl";
  options.deterministic = args.has("deterministic");
  options.timeout_s = static_cast<double>(args.number("timeout", 600));
  // Loading code may wait for the device, on which a collective may wait for another rank. Ranks of one process share
  // the driver's locks, and ranks that launch in different orders may each wait for the other. Where each rank has a
  // process and all launch in one order, the rank that is behind never waits: everybody else has launched what it has.
  options.loads_all_at_once = options.nccl && (ranks_of_process > 1 || !is_one_program(job));
  SG_ASSIGN(std::unique_ptr<BackendMaker> maker, load_backend(args.text("backend"), options));
  args.report().note("running on " + maker->describe());
  return maker;
}

}  // namespace sg::cli
