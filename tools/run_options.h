// The options of sg-run, and what they mean to a session.
#pragma once

#include <span>
#include <vector>

#include "librun/session.h"
#include "tools/cli.h"

namespace sg::cli {

std::span<const Option> run_options();

// --bind, as often as it is given.
Result<std::vector<SizeBinding>> size_bindings(const Args& args);

// `ranks`: how many share this machine's cores.
Result<SessionOptions> session_options(const Args& args, uint32_t ranks);

}  // namespace sg::cli
