// The commands of `stepgraph`: each is a tool `sg-NAME`, but for the last two.
#pragma once

#include <string_view>

namespace sg::cli {

inline constexpr std::string_view kCommands[] = {
    "import", "export", "clean", "remat", "offload", "chunk",  "overlap",     "bucket", "concretize",
    "pipe",   "print",  "parse", "check", "diff",    "log",    "explain",     "recipe", "reduce",
    "run",    "sim",    "stat",  "view",  "sweep",   "doctor", "completions", "help"};

constexpr bool is_part_of_front(std::string_view command) { return command == "completions" || command == "help"; }

}  // namespace sg::cli
