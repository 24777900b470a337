// Values for every input of a job's first program, in a safetensors file: so that random jobs run.
//
// Every symbolic size is 8, as in random_job. Floats lie around zero, integers in [0, 4), booleans are both.
#pragma once

#include <string>

#include "libgraph/job.h"

namespace sg::test {

Status write_random_inputs(const Job& job, uint64_t seed, const std::string& path);

}  // namespace sg::test
