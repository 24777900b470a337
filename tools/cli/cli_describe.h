// A job in one line, on a page, or as JSON.
#pragma once

#include <string>
#include <string_view>

#include "libgraph/job.h"
#include "tools/cli/cli.h"

namespace sg::cli {

// "383 nodes, 52 inputs, 51 outputs, 4 ranks in 1 program".
std::string describe(const Job& job);
// Title, world, groups, and a line a program.
std::string describe_long(const Job& job);
// {"schema":TOOL,"version":1,"file","nodes","inputs","outputs","world","programs"}: the --json report of a writer.
std::string describe_json(const Args& args, const Job& job, const std::string& file, std::string_view passes = {});

}  // namespace sg::cli
