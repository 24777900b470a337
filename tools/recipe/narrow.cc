#include "tools/recipe/narrow.h"

#include "libgraph/base/temp_folder.h"
#include "libgraph/binary/binary.h"
#include "libgraph/verify/verify.h"
#include "tools/cli/cli_write.h"
#include "tools/recipe/executor.h"
#include "tools/recipe/process.h"

namespace sg::recipe {
namespace {

class Narrowing {
 public:
  Narrowing(const Step& stage, const std::string& input, Cache* cache, const NarrowOptions& options)
      : stage_(stage), input_(input), cache_(cache), options_(options) {}

  Result<Narrowed> run() {
    SG_ASSIGN(Job job, read_binary(input_, stage_.name));
    const std::vector<StepPart> parts = step_parts(job);
    Narrowed out;
    out.of = parts.size();
    SG_ASSIGN(Answer with_none, ask(0, 0));
    if (with_none == Answer::bad) return out;
    SG_ASSIGN(size_t end, first_bad_end(parts.size()));
    SG_ASSIGN(size_t begin, last_bad_begin(end));
    out.touched = end - begin, out.first = parts[begin], out.last = parts[end - 1];
    return out;
  }

 private:
  // Judges the result of the stage when it may change only the parts [begin, end) of its input.
  Result<Answer> ask(size_t begin, size_t end) {
    SG_ASSIGN(Job job, read_binary(input_, stage_.name));
    freeze_all_but(&job, begin, end);
    SG_ASSIGN(std::string frozen, write_binary(job));
    Result<std::string> made = run_stage(stage_, frozen, cache_, options_.pipes);
    if (!made.ok()) return made.error().kind == ErrorKind::cannot_apply ? Answer::good : Answer::unknown;
    SG_ASSIGN(Job result, read_binary(*made, stage_.name));
    thaw(&result);
    Diagnostics findings(1);
    verify(result, VerifyOptions(), &findings);
    if (findings.has_errors()) return Answer::unknown;
    SG_ASSIGN(std::string sealed, write_binary(result));
    SG_ASSIGN(Answer answer, options_.judge(sealed));
    options_.told("with nodes " + std::to_string(begin) + " to " + std::to_string(end) + " it is " + word_of(answer));
    return answer;
  }

  Result<size_t> first_bad_end(size_t count) {
    size_t good = 0, bad = count;
    while (bad - good > 1) {
      size_t middle = good + (bad - good) / 2;
      SG_ASSIGN(Answer answer, ask(0, middle));
      (answer == Answer::bad ? bad : good) = middle;
    }
    return bad;
  }

  Result<size_t> last_bad_begin(size_t end) {
    size_t bad = 0, good = end;
    while (good - bad > 1) {
      size_t middle = bad + (good - bad) / 2;
      SG_ASSIGN(Answer answer, ask(middle, end));
      (answer == Answer::bad ? bad : good) = middle;
    }
    return bad;
  }

  const Step& stage_;
  const std::string& input_;
  Cache* cache_;
  const NarrowOptions& options_;
};

}  // namespace

std::string word_of(Answer answer) {
  return answer == Answer::good ? "good" : answer == Answer::bad ? "bad" : "not to be judged";
}

Result<Narrowed> narrow_to_nodes(const Step& stage, const std::string& input, Cache* cache,
                                 const NarrowOptions& options) {
  return Narrowing(stage, input, cache, options).run();
}

// Runs a plan of two steps: the graph as a file, and the stage on it.
Result<std::string> run_stage(const Step& stage, const std::string& input, Cache* cache, bool pipes) {
  SG_ASSIGN(TempFolder folder, TempFolder::make("sg-recipe"));
  SG_TRY(cli::write_whole(folder.file("graph.sg"), input));
  Plan plan;
  plan.steps.resize(2);
  plan.steps[0].name = "input", plan.steps[0].tool = "graph", plan.steps[0].sources = {folder.file("graph.sg")};
  plan.steps[0].where = stage.where;
  plan.steps[1] = stage;
  plan.steps[1].from = 0;
  plan.steps[1].name += " (bisect)";  // keeps `plan`'s record of the stage itself
  plan.steps[1].runs.clear();         // they refer to steps of another plan
  ExecuteOptions options{.pipes = pipes, .checks = false, .outputs = false, .keep_graphs = true};
  Executor executor(plan, cache, options, [](size_t, const StepResult&) {});
  std::vector<StepResult> results = executor.run({1});
  for (const StepResult& r : results)
    if (r.error) return *r.error;
  return *results[1].bytes;
}

}  // namespace sg::recipe
