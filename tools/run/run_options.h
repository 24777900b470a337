// The options of sg-run, and what they mean to a session.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "librun/session.h"
#include "tools/cli/cli.h"

namespace sg::cli {

std::span<const Option> run_options();

// --bind, as often as it is given.
Result<std::vector<SizeBinding>> size_bindings(const Args& args);

// The step that a run begins with: 0, or the one that --state was left before.
Result<uint64_t> first_step(const Args& args, uint32_t rank);

// `ranks`: how many share this machine's cores.
Result<SessionOptions> session_options(const Args& args, uint32_t ranks);

// What is wrong with the options before there is a graph: their values, what does not go together, files that are not
// there.
Status check_run_options(const Args& args);

// The same of a command line, for those who call sg-run: the names of the options that it gives.
Result<std::vector<std::string_view>> check_run_words(const std::vector<std::string>& words);

}  // namespace sg::cli
