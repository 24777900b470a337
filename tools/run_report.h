// What sg-run says of a run.
#pragma once

#include <string>
#include <string_view>

#include "librun/session.h"
#include "tools/cli.h"

namespace sg::cli {

std::string run_text(const SessionReport& report);
std::string run_json(const SessionReport& report);

// "512MiB", "2GiB", "1.5GB", "1000": bytes.
Result<int64_t> parse_bytes(std::string_view text);

// A number given as text; none when the option is not given.
Result<std::optional<double>> number_option(const Args& args, std::string_view name);

// A job that holds some of its ranks cannot run (cannot_apply).
Status require_all_ranks(const Job& job);

}  // namespace sg::cli
