// Pipeline: runs several passes on one job; verifies, times and dumps each.
//
// Stages   Before each stage the job is exactly what a reader of its .sg file would have (docs/design/008-passes.md),
//          so a stage gives the same bytes here as a tool in a pipe.
// Verify   The result of each stage is verified. A finding is our bug: the Error (internal) names the pass and the
//          rule, and `failed` keeps the job before that stage and the remaining stages.
// Effort   With best_effort, a stage that cannot do what was asked, and has no smaller part to leave alone, is
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

// The option of every pass tool, in the history of what it left alone.
inline constexpr std::string_view kBestEffort = "best-effort";

struct Stage {
  const PassInfo* pass = nullptr;
  PassOptions options;
  bool best_effort = false;  // of this stage; PipelineOptions has that of all
};

struct PipelineOptions {
  bool best_effort = false;
  bool explain = false;
  size_t threads = 1;
  std::vector<std::string> disabled;  // "clean" (the first), or "clean:2"
  std::string stop_after;             // the same; empty = after the last
  std::string version;                // of the tools, recorded in the provenance
  // How far a stage that takes long has come.
  std::function<void(const std::string& stage, const std::string& what)> progress;
  // Called after each stage with the sealed bytes of its result: reports, dumps. An error ends the pipeline.
  std::function<Status(const struct StageReport&, const std::string& bytes)> after_stage;
};

struct StageReport {
  std::string name;  // "clean:2"
  const PassInfo* pass = nullptr;
  Change change;
  double seconds = 0;                        // of the pass alone
  bool left_out = false;                     // skipped under best_effort because it could not be done
  size_t nodes_before = 0, nodes_after = 0;  // of all programs
};

// Input of a stage that failed: enough to run it again.
struct FailedStage {
  std::string input;        // sealed bytes
  std::vector<Stage> rest;  // the failed stage and the selected stages after it
  bool best_effort = false;
};

// Names of the stages, in order: "clean", "remat", "clean:2".
std::vector<std::string> stage_names(std::span<const Stage> stages);
// A name in the spelling of stage_names: "clean:1" becomes "clean".
std::string canonical_stage(std::string_view name);

// `job` is replaced by the result. Notes and warnings of all stages go to `notes`.
Result<std::vector<StageReport>> run_pipeline(Job* job, std::vector<Stage> stages, const PipelineOptions& options,
                                              Diagnostics* notes, std::optional<FailedStage>* failed = nullptr);

}  // namespace sg
