// Who started this process, and as which rank: by the variables that launchers set.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "libgraph/result.h"

namespace sg {

struct LaunchEnv {
  std::string family;  // "torchrun", "Open MPI", "MPICH", "Slurm"
  uint32_t rank = 0, world = 1;
  uint32_t local_rank = 0, local_world = 1;  // on this host; 0 of 1 where the launcher does not say
};

// None: started alone. An error when two launchers disagree, or a variable is no number. Slurm's own numbers count only
// where nobody else speaks, as a job script's mpirun hands them down to its ranks, and only within a step: srun started
// its processes; a job script is one process, whatever the job asked for.
Result<std::optional<LaunchEnv>> detect_launch(const std::function<const char*(const char*)>& getenv);

}  // namespace sg
