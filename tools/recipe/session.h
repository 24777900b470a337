// A recipe as one command of sg-recipe sees it: read, expanded, checked; with its cache, and results told as they come.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/cli.h"
#include "tools/recipe/executor.h"

namespace sg::recipe {

struct Session {
  std::string file;
  Plan plan;
  Cache cache{"", 0};
};

// Reports the problems of a recipe. With mistakes among them, returns an Error that sums up: `usage` if all are on the
// command line, else `unreadable`. A single one without a line (no such file) is that Error.
Status report_mistakes(const cli::Args& args, const Diagnostics& problems, const std::string& file);

// Keeps the files that a recipe and its steps read (libgraph/base/output_file.h): what is left are goldens that are
// made.
void keep_files(const Recipe& recipe, const Plan& plan, bool makes_goldens);

// Mistakes are reported, all of them, by report_mistakes.
Result<Session> open_session(const cli::Args& args);

// Runs the plan, telling each step on standard error.
std::vector<StepResult> execute(const cli::Args& args, Session* session, ExecuteOptions options,
                                const std::vector<uint32_t>& wanted = {});

// 0 when all went well and all held, 1 when something does not hold, else the kind of the first error.
int exit_code_of(const std::vector<StepResult>& results);

std::string_view state_name(StepState state);

}  // namespace sg::recipe
