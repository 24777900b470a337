// Runs a plan: each step once its input is there, on several threads; results from the cache where the key is known.
//
// Life         A step that is ready is taken (work), made or found (make_once), held against what the recipe asks and
//              written where that says (settle), told, and its graph let go when the last step that reads it is done.
// Same bytes   A pass runs here by the pipeline, or with `pipes` as its tool with the graph through standard input: the
//              bytes are the same. Two variants whose steps have one key share the work.
// Failure      A step that fails stops those that read it, and no other. A check that fails stops nothing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/recipe/cache.h"
#include "tools/recipe/key.h"
#include "tools/recipe/plan.h"

namespace sg::recipe {

enum class StepState : uint8_t { waiting, made, cached, failed, skipped };

struct StepResult {
  StepState state = StepState::waiting;
  Key key;
  std::shared_ptr<const std::string> bytes;  // sealed; null unless made or cached
  std::string digest;                        // of them
  std::string summary;                       // "3 nodes removed (12 -> 9 nodes)"
  double seconds = 0;
  std::optional<Error> error;
  std::vector<Diagnostic> failed_checks;  // severity error: does not hold
  std::vector<Diagnostic> notes;          // what the pass said
  std::string said;                       // what a tool said, as it is
  bool blessed = false;
};

struct ExecuteOptions {
  size_t threads = 1;
  bool pipes = false;
  bool checks = true;        // expectations, assertions and runs
  bool outputs = true;       // write the files that stages name
  bool keep_graphs = false;  // in the results, beyond their last reader
  bool bless = false;        // write expectations instead of comparing, where everything else held
  // Called with each graph that is there, on the thread that made it; several at once.
  std::function<void(size_t, const StepResult&)> examine = {};
};

// Under which the cache keeps what a step's key was made of.
std::string last_name(const Step& step);

class Executor {
 public:
  // `told` is called under a lock, once for each step when all is known about it.
  Executor(const Plan& plan, Cache* cache, ExecuteOptions options, std::function<void(size_t, const StepResult&)> told);

  // Steps that `wanted` does not need (by index; empty = all are wanted) are left waiting.
  std::vector<StepResult> run(const std::vector<uint32_t>& wanted = {});

 private:
  struct Shared;
  struct Needs;
  class UnderWay;
  void work(Shared* shared);
  void perform(size_t step, Shared* shared);
  StepResult outcome(size_t index, Shared* shared);
  static Needs needs_of(const Step& step, Shared* shared);
  Status make_once(const Step& step, const StepResult& input, Shared* shared, StepResult* out);
  Status make(const Step& step, const StepResult& input, StepResult* out);
  Status settle(const Step& step, const Needs& needs, StepResult* out);
  Result<std::string> read_input(const Step& step, StepResult* out);
  Result<std::string> pass_here(const Step& step, const StepResult& input, StepResult* out);
  Result<std::string> pass_by_tool(const Step& step, const StepResult& input, StepResult* out);

  const Plan& plan_;
  Cache& cache_;
  ExecuteOptions options_;
  std::function<void(size_t, const StepResult&)> told_;
};

}  // namespace sg::recipe
