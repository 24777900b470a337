// The other tools of the suite, which lie beside the one that runs.
#pragma once

#include <string>

#include "tools/cli/cli.h"

namespace sg::cli {

// The folder of this program, with a slash; empty when the system does not say.
std::string folder_of_this();

// Runs `sg-WORDS[0]` with the rest of the words in place of this program; returns only when that fails.
Error run_sibling(std::vector<std::string> words);

bool has_sibling(std::string_view command);

// What `sg-WORDS[0]` prints, run with the rest of the words.
Result<std::string> output_of_sibling(const std::vector<std::string>& words);

}  // namespace sg::cli
