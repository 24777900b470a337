// What a command line shows of a pass, and of any other tool: rows of its table of options, and examples.
#pragma once

#include <string_view>

namespace sg {

// One option: `--name VALUE` of the tool, `name: VALUE` of a recipe's stage.
struct PassOption {
  std::string_view name;  // "output", given as --output
  char letter = 0;        // 'o', given as -o; 0 = none
  // Empty = a flag; "N" = a whole number; "a|b" = one of these; else any text. "a|b,..." = several of these with
  // commas. A name in capitals says what is meant: tools/cli/cli_complete.h.
  std::string_view argument;
  std::string_view help;           // lower-case start, no full stop
  std::string_view fallback = {};  // the default, shown in the help and returned by Args::text
  bool repeated = false;           // may be given more than once
  bool written = false;            // names a file that the tool writes
};

struct Example {
  std::string_view command;  // runnable in a folder that holds the files it names
  std::string_view what;
};

}  // namespace sg
