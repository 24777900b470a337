// What tools say about a graph beyond its text: one node with its users, a verdict, types that disagree. And the sources
// that sg-import reads.
#pragma once

#include <string>
#include <vector>

#include "libgraph/capture.h"
#include "libgraph/job.h"
#include "tools/cli_job.h"

namespace sg::cli {

// The node of that name (with or without %) and those that use its results, in every graph of the job that has it.
Result<std::string> node_report(const Job& job, std::string name);

// sg-check's answer for one argument; findings and errors go to the Reporter.
struct Verdict {
  std::string line;      // "step.sg: valid, 383 nodes, ..."
  std::string json;      // {"file","verdict","findings"}
  int code = 0;          // 0 valid, 1 findings, else the kind of the error
};
Verdict judge(const Args& args, const std::string& operand, const Result<Loaded>& loaded, size_t max_findings);

// Every rule of the verifier with its promise, a line each.
std::string rules_report();

// The captures that the operands name, standard input without any. Other kinds of source are refused by name.
struct Sources {
  std::vector<CaptureFile> files;
  std::string name;      // for messages
  std::string digest;    // of the one file, or of the files' digests a line each
};
Result<Sources> read_sources(const Args& args);

// Recorded types that our rules contradict. `count` leaves out those that are known to be the recorder's fault.
struct TypeReport {
  std::string text, json;
  size_t count = 0;
};
TypeReport type_report(const Job& job, const std::string& name);

}  // namespace sg::cli
