// Reports between the processes of a run: each knows its own ranks, and one of them speaks of all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "librun/session.h"

namespace sg {

// Without `profile` and `written`, which stay with the process that made them.
std::string report_bytes(const SessionReport& report);

// Another version of the project may write other bytes: an error then, as for bytes that are cut off.
Result<SessionReport> report_of_bytes(std::string_view bytes);

// One report out of those of all processes: ranks in order, each step as long as that of the slowest.
SessionReport joined_reports(std::vector<SessionReport> parts);

}  // namespace sg
