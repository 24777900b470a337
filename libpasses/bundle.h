// Bundle: what is needed to reproduce a failed stage, as one graph file: the graph before it, and in its `extra` the
// remaining stages. `sg-pipe --resume FILE` runs them; every other tool reads the file as an ordinary graph.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "libpasses/pipeline.h"

namespace sg {

// The sealed bytes of the file. Fails only if the kept input cannot be read.
Result<std::string> write_bundle(const FailedStage& failed);

// Moves the stages out of the job's `extra`. `find` looks up a pass by name, as find_pass does. Without stages, or with
// an unknown pass, the job is unreadable.
struct BundledStages {
  std::vector<Stage> stages;
  bool best_effort = false;
};
using PassFinder = std::function<const PassInfo*(std::string_view)>;
Result<BundledStages> take_stages(Job* job, const PassFinder& find = find_pass);

}  // namespace sg
