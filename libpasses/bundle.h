// Bundle: what is needed to reproduce a failed stage, as one graph file: the graph before it, and in its `extra` the
// remaining stages. `sg-pipe --resume FILE` runs them; every other tool reads the file as an ordinary graph.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "libpasses/pipeline.h"

namespace sg {

// The sealed bytes of the file. Fails only where the kept input cannot be read.
Result<std::string> write_bundle(const FailedStage& failed);

// Takes the stages out of the job's `extra`: none are left there. `find` gives a pass by its name, as find_pass does. A
// job without stages, or with a pass that is not known, is unreadable.
struct BundledStages {
  std::vector<Stage> stages;
  bool best_effort = false;
};
using PassFinder = std::function<const PassInfo*(std::string_view)>;
Result<BundledStages> take_stages(Job* job, const PassFinder& find = find_pass);

}  // namespace sg
