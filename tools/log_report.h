// What sg-log says of a graph's history.
#pragma once

#include <string>
#include <vector>

#include "libpasses/replay.h"

namespace sg::cli {

std::string log_text(const Job& job, const std::vector<HistoryStep>& history, const std::string& digest);
std::string log_json(const std::string& file, const Job& job, const std::vector<HistoryStep>& history,
                     const std::string& digest);

// --replay without EARLIER: a shell script, given the sources of the first step, which the graph does not record.
// REQUIRES: check_script(history)
std::string script_of(const std::vector<HistoryStep>& history, const std::string& digest);
// Names in a file are not run unless they are known tools: passes, and the import that a history begins with.
Status check_script(const std::vector<HistoryStep>& history);

// --replay EARLIER, by which the last `done.steps` of `steps` were done again.
std::string replay_text(const Replay& done, size_t steps);
std::string replay_json(const Replay& done);

}  // namespace sg::cli
