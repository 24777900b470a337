// Probe: asks the user's command whether a candidate still shows what is looked for.
//
// Command   Run by /bin/sh with the candidate's path as its last word, in a process group of its own; what it writes is
//           dropped unless it is to be shown. Exit 0: it does; 125: this candidate says nothing; anything else, or no
//           answer in time: it does not.
// Threads   Several may ask at once. After stop() nothing is started any more, and what runs is killed.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "libgraph/result.h"

namespace sg::reduce {

enum class Answer : uint8_t { yes, no, skip, stopped };

struct ProbeOptions {
  std::string command;
  double timeout_seconds = 60;
  bool show = false;  // pass on what the command writes
  int attempts = 1;   // of a flaky command: yes if one of so many says so
};

// Fails when no process can be started.
Result<Answer> probe(const ProbeOptions& options, const std::string& candidate);

// From a signal handler, too.
void stop_probing();

}  // namespace sg::reduce
