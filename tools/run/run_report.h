// What sg-run says of a run.
#pragma once

#include <string>
#include <string_view>

#include "librun/session.h"
#include "tools/cli/cli.h"

namespace sg::cli {

std::string run_text(const SessionReport& report);
// --dry-run: what would run, when all is at hand.
std::string dry_run_text(const Job& job, const SessionReport& report, int64_t steps);
std::string dry_run_json(const SessionReport& report, int64_t steps);
std::string run_json(const SessionReport& report);

// --profile, when it is given: the name of its file, not yet in its place. Several processes write a file each: {r} in
// its name.
Result<std::string> stage_profile(const Args& args, const SessionReport& report, OutputSet* files);

}  // namespace sg::cli
