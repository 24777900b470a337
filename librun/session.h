// Session: runs a job as sg-run does: inputs, steps, results.
//
// Nothing runs before every rank has its inputs, every op has a kernel, memory is allocated and all ranks agree on
// their collectives. Files are written under temporary names once all ranks have written theirs; the caller places them
// with what else it writes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libgraph/base/output_file.h"
#include "libgraph/base/result.h"
#include "libgraph/expr/size_binding.h"
#include "librun/check/compare_report.h"
#include "librun/check/expect_report.h"
#include "librun/numerics.h"
#include "librun/optimizer/optimizer_options.h"
#include "librun/rank_options.h"

namespace sg {

class Communicator;
class Job;
class Record;  // compare.h

struct SessionOptions {
  RankOptions rank;                   // `sum_order` is set by run_session
  std::optional<SumOrder> sum_order;  // none = what the job needs (value_choice.h)
  uint64_t steps = 1;
  uint64_t first_step = 0;            // the number of the first; the step before it has left `state`
  std::optional<uint64_t> init_seed;  // --init: makes up the inputs that no file gives
  std::vector<SizeBinding> bindings;  // --bind: sizes that override those of the files and the capture
  // The first graph of a comparison: --init follows its rules first, and expected outputs are matched by their meaning
  // in it.
  const Job* compared_to = nullptr;
  std::optional<OptimizerOptions> optimizer;  // parameters are updated after each step; none = they stay the same
  std::string injected;                       // describes what slows the communicators; must be equal on all ranks
  double timeout_s = 0;                       // a rank without progress for so long ends the run; 0 = never
  // File patterns: {r} is the rank, {step} the step; without {step}, outputs and expectations refer to the last step.
  std::vector<std::string> inputs;
  std::string constants;      // a file or folder with constants that the inputs lack, by digest; empty = none
  bool spare_inputs = false;  // tensors without a graph input are ignored
  std::string state;          // --state: what another run left
  std::string outputs, expect, dump, dump_inputs, dump_state;
  ExpectOptions tolerance;
  std::vector<std::string> dump_names;  // patterns of result names
  std::string watch;                    // "nan,inf"; empty = off
  bool profile = false;
  bool explain = false;
  // --compare: the first run is recorded, the second compared with the record. By rank of the job.
  std::vector<Record>* record = nullptr;
  const std::vector<Record>* compare_with = nullptr;
  std::function<Status()> inputs_known;                         // before the first step, from the thread of each rank
  std::function<void(uint64_t step, double seconds)> progress;  // after each step, from the thread of the first rank
  std::function<void(const std::string& line)> say;             // what the user should know about made-up inputs
  std::function<void(const Error& error)> last_words;           // before the process is ended: a rank does not return
};

struct StepNumbers {
  std::string name;           // "out1"
  std::vector<double> steps;  // of each
};

struct RankReport {
  uint32_t rank = 0;
  std::vector<double> losses;                                  // of each step; empty if the graph has no single loss
  std::vector<StepNumbers> numbers;                            // without one: of its outputs, those of one number
  std::vector<std::pair<std::string, ExpectReport>> expected;  // file and outcome
  std::optional<ComparisonReport> comparison;
  int64_t input_bytes = 0, arena_bytes = 0, pool_bytes = 0;
  int64_t host_bytes = 0;              // arena for copies on the host
  int64_t tokens = 0;                  // elements of the largest user input that an embedding looks up
  std::vector<std::string> explained;  // GraphRun::explain, if requested
};

struct SessionReport {
  std::vector<RankReport> ranks;     // those of this process
  std::vector<double> step_seconds;  // of the slowest of them, from first_step on
  uint64_t first_step = 0;
  std::string profile;  // JSON
  OutputSet written;    // outputs and dumps of all ranks, not yet in their places
  bool passed() const;  // whether all expectations were met
};

// Runs the ranks of `comms`. REQUIRES: the job is verified and contains them.
Result<SessionReport> run_session(const Job& job, std::span<const std::unique_ptr<Communicator>> comms,
                                  const SessionOptions& options);

}  // namespace sg
