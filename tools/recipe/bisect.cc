#include "tools/recipe/bisect.h"

#include <algorithm>

#include "libgraph/nearest.h"
#include "tools/cli_job.h"
#include "tools/recipe/checks.h"
#include "tools/recipe/process.h"

namespace sg::recipe {
namespace {

enum class Answer : uint8_t { good, bad, unknown };

class Bisection {
 public:
  Bisection(const cli::Args& args, Session* session) : args_(args), session_(*session), steps_(session->plan.steps) {}

  Result<int> run() {
    SG_TRY(find_chain());
    results_ = execute(args_, &session_, {.checks = false, .outputs = false, .keep_graphs = true}, {chain_.back()});
    if (int code = exit_code_of(results_); code != 0) return code;
    SG_TRY(require(chain_.front(), Answer::good));
    SG_TRY(require(chain_.back(), Answer::bad));
    SG_ASSIGN(size_t first_bad, search());
    std::string options;
    SG_ASSIGN(options, guilty_options(chain_[first_bad]));
    const Step& step = steps_[chain_[first_bad]];
    SG_TRY(cli::write_text(args_, "the first bad one is " + step.name + " (" + print_location(step.where) + "); " +
                                      steps_[chain_[first_bad - 1]].name + " is good\n" + options));
    return 1;
  }

 private:
  Result<uint32_t> step_named(const std::string& name) {
    Nearest nearest(name);
    for (uint32_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].name == name) return i;
      nearest.offer(steps_[i].name);
    }
    return Error{ErrorKind::usage, "the recipe has no stage or input `" + name + "`", {}, nearest.hint()};
  }

  // From good to bad, both included.
  Status find_chain() {
    const std::vector<std::string>& words = args_.operands();
    uint32_t bad = static_cast<uint32_t>(steps_.size() - 1), good = Step::kNone;
    if (words.size() > 2) {
      SG_ASSIGN(good, step_named(words[2]));
    }
    if (words.size() > 3) {
      SG_ASSIGN(bad, step_named(words[3]));
    }
    for (uint32_t at = bad; at != Step::kNone; at = steps_[at].from) {
      chain_.insert(chain_.begin(), at);
      if (at == good) break;
    }
    if (good != Step::kNone && chain_.front() != good)
      return Error{ErrorKind::usage, "`" + steps_[bad].name + "` does not come from `" + steps_[good].name + "`", {}, {}};
    if (chain_.size() < 2) return Error{ErrorKind::usage, "there is no stage between the good one and the bad one", {}, {}};
    return ok_status();
  }

  Result<Answer> judge(const std::string& bytes, const std::string& digest) {
    return args_.has("fails") ? judge_by_command(bytes) : judge_by_run(bytes, digest);
  }

  Result<Answer> judge_by_command(const std::string& bytes) {
    SG_ASSIGN(TempFolder folder, TempFolder::make());
    SG_TRY(cli::write_whole(folder.file("graph.sg"), bytes));
    SG_ASSIGN(Finished done, run_process({"/bin/sh", "-c", args_.text("fails") + " \"$0\"", folder.file("graph.sg")}, {}, "-"));
    return done.code == 0 ? Answer::bad : done.code == 125 ? Answer::unknown : Answer::good;
  }

  // With the options of the bad stage's own run; made-up inputs when it has none.
  Result<Answer> judge_by_run(const std::string& bytes, const std::string& digest) {
    Step probe = steps_[chain_.back()];
    if (probe.runs.empty()) probe.runs.push_back({probe.where, {{"init", "seed:0", false, false}}, RunCheck::kNone});
    probe.runs.resize(1);
    std::erase_if(probe.runs[0].options, is_about_comparing);
    probe.runs[0].bitwise_to = chain_.front();
    const StepResult& good = results_[chain_.front()];
    std::vector<Diagnostic> failing = failing_runs(probe, {bytes, digest}, {GraphBytes{*good.bytes, good.digest}}, &session_.cache);
    if (!failing.empty()) args_.report().note(failing[0].message);
    return failing.empty() ? Answer::good : Answer::bad;
  }

  Result<Answer> judge_step(uint32_t step) { return judge(*results_[step].bytes, results_[step].digest); }

  Status require(uint32_t step, Answer wanted) {
    SG_ASSIGN(Answer answer, judge_step(step));
    if (answer == wanted) return ok_status();
    std::string word = wanted == Answer::good ? "good" : "bad";
    return Error{ErrorKind::cannot_apply, "`" + steps_[step].name + "` is not " + word, steps_[step].where, "bisection needs a good one and a bad one"};
  }

  // Position in the chain of the first bad one. One that nobody can judge is taken for its neighbour.
  Result<size_t> search() {
    size_t good = 0, bad = chain_.size() - 1;
    while (bad - good > 1) {
      size_t middle = (good + bad) / 2, at = middle;
      Answer answer = Answer::unknown;
      for (; at < bad && answer == Answer::unknown; ++at) {
        SG_ASSIGN(answer, judge_step(chain_[at]));
        if (answer != Answer::unknown) break;
      }
      args_.report().note(steps_[chain_[std::min(at, bad - 1)]].name + (answer == Answer::bad ? " is bad" : answer == Answer::good ? " is good" : " cannot be judged"));
      if (answer == Answer::good) good = at;
      else if (answer == Answer::bad) bad = at;
      else bad = middle;
    }
    return bad;
  }

  // Options without which the stage's result is good.
  Result<std::string> guilty_options(uint32_t index) {
    const Step& step = steps_[index];
    std::string out;
    for (size_t i = 0; i < step.options.size(); ++i) {
      Plan less = session_.plan;
      less.steps[index].options.erase(less.steps[index].options.begin() + static_cast<std::ptrdiff_t>(i));
      std::string option = "--" + step.options[i].name + (step.options[i].is_flag ? "" : " " + step.options[i].value);
      Executor executor(less, &session_.cache, {.checks = false, .outputs = false, .keep_graphs = true}, [](size_t, const StepResult&) {});
      std::vector<StepResult> results = executor.run({index});
      if (!results[index].bytes) continue;               // the stage needs it
      SG_ASSIGN(Answer answer, judge(*results[index].bytes, results[index].digest));
      if (answer == Answer::good) out += "  without `" + option + "` it is good\n";
    }
    return out;
  }

  const cli::Args& args_;
  Session& session_;
  const std::vector<Step>& steps_;
  std::vector<uint32_t> chain_;
  std::vector<StepResult> results_;
};

}  // namespace

Result<int> bisect(const cli::Args& args, Session* session) { return Bisection(args, session).run(); }

}  // namespace sg::recipe
