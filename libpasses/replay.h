// Replay: what the provenance of a job says was done, as stages, and done again.
//
// Steps    An entry of the provenance is a step: a tool, its version, its options, the digest of what it read. Only
//          passes can be done again here; a reader of sources (sg-import) is the first step and is not.
// Checked  Each step's input is held against the digest that the history has of it. The first that differs is named:
//          another version of a pass, or a graph that was edited by hand in between.
// Trust    A history is data out of a file: it names passes and their options, nothing else is run, no file is written.
#pragma once

#include <string>
#include <vector>

#include "libpasses/pipeline.h"

namespace sg {

struct HistoryStep {
  std::string tool, version, input_digest;  // "sg-remat", "0.1.0", "sha256:..."; the digest may be empty
  std::map<std::string, std::vector<std::string>> options;  // a flag has one empty value
  bool is_readable = true;                                  // false: an option is no text, list of texts or true
  std::string command() const;                              // "sg-remat --policy default", fit for a shell
};
std::vector<HistoryStep> history_of(const Job& job);

// An Error (cannot_apply) where the step is not a pass of this version with options that it has.
Status check_step(const HistoryStep& step);

struct Replay {
  size_t first = 0;   // the step that was done first, from 0
  size_t steps = 0;   // how many were done
  std::string other;  // empty = the same bytes; else the step whose result is another one than then
};

// Does again what was done to `earlier` to make `later`. An Error (cannot_apply): `earlier` is none of the graphs that
// the history tells of, or a step is no pass.
Result<Replay> replay(const Job& earlier, const Job& later, size_t threads);

}  // namespace sg
