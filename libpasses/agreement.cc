#include "libpasses/agreement.h"

#include "libgraph/verify/verify.h"

namespace sg {

std::string disagreement(Job* job, size_t threads) {
  if (job->programs.size() == 1) return {};
  for (auto& program : job->programs)
    for (NodeId n : program->graph.nodes())
      if (const NodeId forward = program->graph.node(n).forward; forward && !program->graph.alive(forward))
        program->graph.set_forward(n, {});
  Diagnostics findings(1);
  verify(*job, {.types = false, .threads = threads}, &findings);
  return findings.has_errors() ? findings.as_error(ErrorKind::internal).message : std::string();
}

}  // namespace sg
