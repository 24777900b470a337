// One program run to its end: words in, bytes in, bytes out, its messages kept.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/result.h"

namespace sg::recipe {

struct Finished {
  int code = 0;        // 128+N when a signal ended it
  std::string output;  // standard output, when it was not sent to a file
  std::string errors;  // standard error
};

// `output`: a file, or "-" to keep it. The program dies with this one. Fails when it cannot be started.
Result<Finished> run_process(const std::vector<std::string>& words, std::string_view input, const std::string& output);

// A program's exit code as what it means. What no tool of ours gives (a signal) is a bug.
Error error_of(const Finished& done, const std::string& program, const Location& where);

// Text below the first line of a message: indented, without line breaks at the end.
std::string indented(std::string text);

}  // namespace sg::recipe
