// sg-check: its answer for each argument, and the rules that it checks by.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/cli/cli.h"
#include "tools/cli/cli_load.h"

namespace sg::cli {

struct Verdict {
  Diagnostics said;  // what reading brought up, and the findings
  std::optional<Error> error;
  std::string line;            // "step.sg: valid, 383 nodes, ..."
  std::string json;            // {"file","verdict","findings"}
  std::string phases;          // "read 0.012 s, verify 0.003 s"
  std::optional<Loaded> kept;  // what was judged, for a tool that leaves without taking it apart
  int code = 0;                // 0 valid, 1 findings, else the kind of the error
};
// Of each operand, several at once; what a single one is of is kept.
std::vector<Verdict> judge_all(const std::vector<std::string>& operands, const Args& args, size_t max_findings);

// Every rule of the verifier with its promise, a line each.
std::string rules_report();

}  // namespace sg::cli
