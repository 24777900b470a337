#include "librun/comm/launch_env.h"

#include <charconv>
#include <cstring>

namespace sg {
namespace {

struct Family {
  const char *name, *rank, *world, *local_rank, *local_world;
};

constexpr Family kFamilies[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
};

using GetEnv = std::function<const char*(const char*)>;

Status read(const GetEnv& getenv, const char* name, uint32_t* out) {
  const char* text = getenv(name);
  if (!text) return ok_status();
  auto [end, error] = std::from_chars(text, text + std::strlen(text), *out);
  if (error == std::errc() && *end == '\0') return ok_status();
  return Error{
      ErrorKind::usage, "the environment has " + std::string(name) + "='" + text + "', which is not a number", {}, {}};
}

Result<std::optional<LaunchEnv>> read_family(const GetEnv& getenv, const Family& f) {
  if (!getenv(f.rank) || !getenv(f.world)) return std::optional<LaunchEnv>();
  LaunchEnv out{f.name};
  SG_TRY(read(getenv, f.rank, &out.rank));
  SG_TRY(read(getenv, f.world, &out.world));
  SG_TRY(read(getenv, f.local_rank, &out.local_rank));
  SG_TRY(read(getenv, f.local_world, &out.local_world));
  if (out.rank >= out.world)
    return Error{ErrorKind::usage,
                 "the environment has rank " + std::to_string(out.rank) + " of " + std::to_string(out.world),
                 {},
                 {}};
  return std::optional(out);
}

std::string text_of(const LaunchEnv& e) {
  return e.family + " says rank " + std::to_string(e.rank) + " of " + std::to_string(e.world);
}

}  // namespace

Result<std::optional<LaunchEnv>> detect_launch(const std::function<const char*(const char*)>& getenv) {
  std::optional<LaunchEnv> found;
  for (const Family& family : kFamilies) {
    SG_ASSIGN(std::optional<LaunchEnv> one, read_family(getenv, family));
    if (!one || (found && one->family == "Slurm")) continue;
    if (found && (one->rank != found->rank || one->world != found->world))
      return Error{ErrorKind::usage,
                   "two launchers disagree: " + text_of(*found) + ", " + text_of(*one),
                   {},
                   "start the ranks with one of them, or unset the variables of the other"};
    if (!found) found = one;
  }
  return found;
}

}  // namespace sg
