// What tools say about a graph beyond its text: one node with its users, a verdict, types that disagree.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libgraph/job.h"
#include "tools/cli.h"
#include "tools/cli_job.h"

namespace sg::cli {

// The node of that name (with or without %) and those that use its results, in every graph of the job that has it.
Result<std::string> node_report(const Job& job, std::string name);

// sg-check's answer for one argument.
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

// Recorded types that our rules contradict. `count` leaves out those that are known to be the recorder's fault.
struct TypeReport {
  std::string text, json;
  size_t count = 0;
};
TypeReport type_report(const Job& job, const std::string& name);

}  // namespace sg::cli
