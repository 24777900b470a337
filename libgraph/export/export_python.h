// export_python: a job as a Python module of plain torch calls; the way back into PyTorch.
//
//     from step import step                         # what sg-export wrote
//     outputs = step(load_file("inputs.safetensors"))
//
// What     One function a rank, or one for all ranks where the job is SPMD, and one a nested graph; the
//          tables that name inputs and outputs; `step(inputs)`, and a `main` that loads, runs and compares
//          files. docs/export.md.
// Exact    Each node is the call that it records, in its order, in-place ops as they are. Python lets go of each result
//          after its last use, so that the peak is that of the schedule.
// Graphs   `fx`: instead of functions, builders of a torch.fx.GraphModule with the same names.
// Safe     No name or text of the graph becomes code: identifiers are made, texts quoted, comments cleaned.
// Limits   What PyTorch cannot be given is `cannot_apply`, with the node: an opaque argument, an op whose name is no
//          torch.ops name, a size that follows from no input, a group whose ranks are not in ascending order.
// Cost     Linear in the graph and its text. A pure function of the job: same job, same bytes.
#pragma once

#include <string>

#include "libgraph/base/result.h"
#include "libgraph/job.h"

namespace sg {

struct PythonExport {
  bool fx = false;
};

// REQUIRES: the verifier has passed the job
Result<std::string> export_python(const Job& job, const PythonExport& options = {});

}  // namespace sg
