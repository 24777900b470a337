// Replay: runs the provenance of a job again.
//
// Steps    Each entry of the provenance is a step: a tool, its version, its options, the digest of its input. Only
//          passes can be repeated; the first step, a reader of sources (sg-import), cannot.
// Checked  The input of each step is compared with the digest recorded in the history. The first mismatch is reported:
//          it means a different version of a pass, or a graph edited by hand in between.
// Trust    A history is untrusted data: it can only name passes and their options; nothing else runs, no file is
//          written.
#pragma once

#include <string>
#include <vector>

#include "libpasses/pipeline.h"

namespace sg {

struct HistoryStep {
  std::string tool, version, input_digest;  // "sg-remat", "0.1.0", "sha256:..."; the digest may be empty
  std::map<std::string, std::vector<std::string>> options;  // a flag has one empty value
  bool is_readable = true;                                  // false: an option is not text, a list of texts or true
  std::string command() const;                              // "sg-remat --policy default", fit for a shell
};
std::vector<HistoryStep> history_of(const Job& job);

// An Error (cannot_apply) if the step is not a pass of this version with options that this version has.
Status check_step(const HistoryStep& step);

struct Replay {
  size_t first = 0;   // index of the first step that was repeated
  size_t steps = 0;   // how many were repeated; 0 = the graphs are the same bytes
  std::string other;  // empty = identical bytes; else the first step whose result differs
};

// Repeats the steps that turned `earlier` into `later`. An Error (cannot_apply) if `earlier` is not in the history, or
// a step is not a pass.
Result<Replay> replay(const Job& earlier, const Job& later, size_t threads);

}  // namespace sg
