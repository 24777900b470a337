// Detects from a launcher's environment variables which rank this process is.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "libgraph/base/result.h"

namespace sg {

struct LaunchEnv {
  std::string family;  // "torchrun", "Open MPI", "MPICH", "Slurm"
  uint32_t rank = 0, world = 1;
  uint32_t local_rank = 0, local_world = 1;  // on this host; 0 of 1 if the launcher does not say
};

// None: started without a launcher. An error if two launchers disagree, or a variable is not a number. Slurm's
// variables count only if no other launcher is present, because a job script's mpirun passes them on to its ranks, and
// only within a step, where srun started the processes; a job script is a single process, whatever the job requested.
Result<std::optional<LaunchEnv>> detect_launch(const std::function<const char*(const char*)>& getenv);

}  // namespace sg
