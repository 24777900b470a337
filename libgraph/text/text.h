// The text form: one node a line, for people, goldens and `git diff`. Grammar: docs/text-format.md.
#pragma once

#include <string>
#include <string_view>

#include "libgraph/base/diag.h"
#include "libgraph/job.h"

namespace sg {

// The whole job. Deterministic; parse_text gives back an equal job, byte for byte in binary form.
std::string print_text(const Job& job);

// Parses a whole text. Errors (up to the cap of `diagnostics`) carry file:line:col, the line and a hint; on any error
// the job is not returned.
Result<Job> parse_text(std::string_view text, const std::string& file, Diagnostics* diagnostics);

}  // namespace sg
