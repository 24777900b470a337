// Pipeline: runs several passes on one job; verifies, times and dumps each.
//
// Stages   Before each stage the job is what a reader of its .sg file would have: docs/design/008-passes.md. So a stage
//          gives the same bytes here as a tool in a pipe does.
// Verify   The result of each stage is verified. A finding is our bug: the Error (internal) names the pass and the
//          rule, and `failed` keeps the job before that stage and the remaining stages.
// Effort   With best_effort, a stage that cannot do what was asked, and has nothing smaller to leave alone, is
//          skipped: a warning says why, and the job continues unchanged, without an entry for that stage in its
//          history.
// Names    If a pass occurs twice, the second stage is "clean:2"; `disabled`, `stop_after` and dumps use these names.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "libpasses/pass.h"

namespace sg {

struct Stage {
  const PassInfo* pass = nullptr;
  PassOptions options;
};

struct PipelineOptions {
  bool best_effort = false;
  bool explain = false;
  size_t threads = 1;
  std::vector<std::string> disabled;  // "clean" (the first), or "clean:2"
  std::string stop_after;             // the same; empty = after the last
  std::string version;                // of the tools, for the provenance
  // After each stage, with the sealed bytes that it left: reports, dumps. An error ends the pipeline.
  std::function<Status(const struct StageReport&, const std::string& bytes)> after_stage;
};

struct StageReport {
  std::string name;  // "clean:2"
  const PassInfo* pass = nullptr;
  Change change;
  double seconds = 0;                        // of the pass alone
  bool left_out = false;                     // it could not be done: best_effort
  size_t nodes_before = 0, nodes_after = 0;  // of all programs
};

// What a stage that went wrong began with: enough to run it again.
struct FailedStage {
  std::string input;        // sealed bytes
  std::vector<Stage> rest;  // the stage itself and those behind it that were to run
  bool best_effort = false;
};

// What stages are called, in order: "clean", "remat", "clean:2".
std::vector<std::string> stage_names(std::span<const Stage> stages);
// A name as the above spells it: "clean:1" is "clean".
std::string canonical_stage(std::string_view name);

// `job` is replaced by the result. Notes and warnings of all stages go to `notes`.
Result<std::vector<StageReport>> run_pipeline(Job* job, std::vector<Stage> stages, const PipelineOptions& options,
                                              Diagnostics* notes, std::optional<FailedStage>* failed = nullptr);

// Orders that the passes warn of, each a line: a stage behind one that it is meant to precede, in the history of the
// job or among the stages. A run of the history that has left nothing in the graph does not count. Lines of the stages
// before `first` are left out.
std::vector<std::string> order_warnings(const Job& job, std::span<const Stage> stages, size_t first = 0);

}  // namespace sg
