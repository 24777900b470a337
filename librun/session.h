// Session: a run of a job as sg-run does it: inputs in, steps, answers out.
//
// Nothing runs before every rank has its inputs, every op has a kernel, memory is allocated and all ranks agree on
// their collectives. Files are written to temporary names and renamed when all ranks have written theirs; they are kept
// when all ranks have renamed theirs; otherwise the previous files are restored.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "librun/compare.h"
#include "librun/expect.h"
#include "librun/optimizer.h"
#include "librun/rank_run.h"

namespace sg {

struct SessionOptions {
  RankOptions rank;
  uint64_t steps = 1;
  std::optional<uint64_t> init_seed;  // --init: makes up the inputs that no file gives
  std::vector<SizeBinding> bindings;  // --bind: sizes that go before those of the files and of the capture
  // The first graph of a comparison: --init follows its rules first, and outputs are expected by what they are in it.
  const Job* compared_to = nullptr;
  std::optional<OptimizerOptions> optimizer;  // parameters are updated after each step; none = they stay as they are
  std::string injected;  // what makes the communicators slower, in words that are equal on all ranks
  double timeout_s = 0;  // a rank that does not get on for so long ends the run; 0 = never
  // File patterns: {r} is the rank, {step} the step; without {step} outputs and expectations are those of the last one.
  std::vector<std::string> inputs;
  std::string constants;      // a file or folder with constants that the inputs lack, by their digests; empty = nowhere
  bool spare_inputs = false;  // what the graph has no input for is passed over
  std::string outputs, expect, dump;
  ExpectOptions tolerance;
  std::vector<std::string> dump_names;  // patterns of result names
  std::string watch;                    // "nan,inf"; empty = off
  bool profile = false;
  bool explain = false;
  // --compare: the first run is recorded, the second held against the record. By rank of the job.
  std::vector<Record>* record = nullptr;
  const std::vector<Record>* compare_with = nullptr;
  std::function<void(uint64_t step, double seconds)> progress;  // after each step, from the thread of the first rank
  std::function<void(const std::string& line)> say;             // what the user should know of inputs that were made up
  std::function<void(const Error& error)> last_words;  // before the process is ended: some rank does not return
};

struct RankReport {
  uint32_t rank = 0;
  std::vector<double> losses;                                  // by step; empty when the graph has no single loss
  std::vector<std::pair<std::string, ExpectReport>> expected;  // file and outcome
  std::optional<ComparisonReport> comparison;
  int64_t input_bytes = 0, arena_bytes = 0, pool_bytes = 0;
  int64_t host_bytes = 0;              // the arena of what was brought to the host
  int64_t tokens = 0;                  // elements of the largest integer user input
  std::vector<std::string> explained;  // GraphRun::explain, where it was asked for
};

struct SessionReport {
  std::vector<RankReport> ranks;     // those of this process
  std::vector<double> step_seconds;  // of the slowest of them
  std::string profile;               // JSON
  bool passed() const;               // everything that was expected
};

// Runs the ranks that `comms` stand for. REQUIRES: the job is verified and holds them.
Result<SessionReport> run_session(const Job& job, std::span<const std::unique_ptr<Communicator>> comms,
                                  const SessionOptions& options);

}  // namespace sg
