// The other tools of the suite, which lie beside the one that runs.
#pragma once

#include <string>

#include "tools/cli.h"

namespace sg::cli {

// The folder of this program, with a slash; empty when the system does not say.
std::string folder_of_this();

// Runs `sg-WORDS[0]` with the rest of the words in place of this program; returns only when that fails.
Error run_sibling(std::vector<std::string> words);

// What completes `tool` and all of its commands in a shell.
Result<std::string> completions_of_suite(const Tool& tool, const std::string& shell);

}  // namespace sg::cli
