// Probe: asks the user's command whether a candidate still shows what is looked for.
//
// Command   Run by /bin/sh with the candidate's path as its last word, in a process group of its own; what it writes is
//           dropped unless it is to be shown. Exit 125: this candidate says nothing. Else what `Interest` says; no
//           answer in time, or a signal: it does not. What it prints is searched in the same time.
// Threads   Several may ask at once. After stop() nothing is started any more, and what runs is killed.
#pragma once

#include <cstdint>
#include <string>

#include "libgraph/base/result.h"
#include "tools/reduce/line_search.h"

namespace sg::reduce {

enum class Answer : uint8_t { yes, no, late, skip, stopped };  // late: no answer in time, which is a no

// What makes a candidate interesting: exit 0, another exit, or a line of what the command prints.
struct Interest {
  enum class Kind : uint8_t { pass, fail, print } kind = Kind::pass;
  LineSearch printed;
};
Result<Interest> parse_interest(const std::string& text);  // "pass", "fail", "regex:RE"

struct ProbeOptions {
  std::string command;
  Interest interest;
  double timeout_seconds = 60;
  bool show = false;  // pass on what the command writes
  int attempts = 1;   // of a flaky command: yes if one of so many says so
};

// Fails when no process can be started.
Result<Answer> probe(const ProbeOptions& options, const std::string& candidate);

// From a signal handler, too.
void stop_probing();

}  // namespace sg::reduce
