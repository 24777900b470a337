#include "tools/recipe/bisect.h"

#include <optional>

#include "libgraph/base/human.h"
#include "libgraph/base/json.h"
#include "libgraph/base/temp_folder.h"
#include "tools/cli/cli_siblings.h"
#include "tools/cli/cli_words.h"
#include "tools/cli/cli_write.h"
#include "tools/recipe/name_hint.h"
#include "tools/recipe/narrow.h"
#include "tools/recipe/process.h"

namespace sg::recipe {
namespace {

constexpr int kRankFailed = 6;                                         // exit code of sg-run
constexpr int kCannotTell = 125, kNotRunnable = 126, kNotFound = 127;  // of the command; of the shell

// The result of a bisection. Any of `unjudged` may be the first bad one, too; only without them is it known what in the
// step is to blame.
struct Guilt {
  const Step& step;
  std::string good;                   // the step before all of these
  std::vector<const Step*> unjudged;  // between them, each of which could not be judged
  std::vector<std::string> options;   // each: without it the result is good
  std::optional<Narrowed> nodes;      // none: not a pass
};

std::string first_line(const Guilt& g) {
  auto at = [](const Step& step) { return step.name + " (" + print_location(step.where) + ")"; };
  if (g.unjudged.empty()) return "the first bad one is " + at(g.step) + "; " + g.good + " is good";
  const Step &first = *g.unjudged.front(), &last = *g.unjudged.back();
  return "the first bad one is one of " + at(first) + " .. " + at(g.step) + "; " + first.name +
         (&first == &last ? "" : " to " + last.name) + " could not be judged; " + g.good + " is good";
}

std::string nodes_text(const Guilt& g) {
  if (!g.nodes) return "it is not a pass: it was not narrowed to nodes";
  const Narrowed& n = *g.nodes;
  if (n.touched == 0) return "it is bad even if " + g.step.tool + " may change no node: it was not narrowed to nodes";
  auto node = [](const StepPart& part) { return part.name + (part.source.empty() ? "" : " (" + part.source + ")"); };
  const std::string may = "it is bad if " + g.step.tool + " may change ";
  if (n.touched == 1) return may + node(n.first) + " alone";
  return may + std::to_string(n.touched) + " of " + plural(n.of, "node") + ": " + node(n.first) + " to " +
         node(n.last) + "; with one fewer at either end it is not";
}

std::string guilt_text(const Guilt& g) {
  std::string out = first_line(g) + "\n";
  if (!g.unjudged.empty()) return out;
  for (const std::string& option : g.options) out += "  without `" + option + "` it is good\n";
  return out + "  " + nodes_text(g) + "\n";
}

std::string guilt_json(const Guilt& g) {
  JsonWriter json;
  json.begin_object().member("schema", "sg-recipe-bisect").member("version", 1).member("bad", g.step.name);
  json.member("at", print_location(g.step.where)).member("good", g.good);
  json.key("unjudged").begin_array();
  for (const Step* step : g.unjudged) json.string(step->name);
  json.end_array().key("options").begin_array();
  for (const std::string& option : g.options) json.string(option);
  json.end_array();
  if (g.nodes && g.nodes->touched > 0) {
    json.key("nodes").begin_object().member("touched", g.nodes->touched).member("of", g.nodes->of);
    for (const auto& [key, part] : {std::pair("first", &g.nodes->first), std::pair("last", &g.nodes->last)})
      json.key(key).begin_object().member("name", part->name).member("source", part->source).end_object();
    json.end_object();
  } else {
    json.key("nodes").null();
  }
  return json.end_object().take();
}

class Bisection {
 public:
  Bisection(const cli::Args& args, Session* session) : args_(args), session_(*session), steps_(session->plan.steps) {}

  Result<int> run() {
    SG_TRY(find_chain());
    results_ = execute(args_, &session_, {.checks = false, .outputs = false, .keep_graphs = true}, {chain_.back()});
    if (int code = exit_code_of(results_); code != 0) return code;
    SG_TRY(require(chain_.front(), Answer::good));
    SG_TRY(require(chain_.back(), Answer::bad));
    SG_ASSIGN(const Found found, search());
    const uint32_t bad = chain_[found.bad];
    Guilt guilt{steps_[bad], steps_[chain_[found.good]].name, {}, {}, {}};
    for (size_t i = found.good + 1; i < found.bad; ++i) guilt.unjudged.push_back(&steps_[chain_[i]]);
    args_.report().note(first_line(guilt));  // the rest may take a while
    if (guilt.unjudged.empty()) {
      SG_ASSIGN(guilt.options, guilty_options(bad));
      if (guilt.step.kind == StepKind::pass) {
        SG_ASSIGN(guilt.nodes, guilty_nodes(bad));
      }
    }
    SG_TRY(cli::write_text(args_, args_.has("json") ? guilt_json(guilt) + "\n" : guilt_text(guilt)));
    return 1;
  }

 private:
  Result<uint32_t> step_named(const std::string& name) {
    std::vector<std::string> names;
    for (uint32_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].name == name) return i;
      names.push_back(steps_[i].name);
    }
    return Error{
        ErrorKind::usage, "the recipe has no stage or input `" + name + "`", {}, name_hint(name, names, "it has")};
  }

  // The steps from good to bad, both included.
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
      return Error{
          ErrorKind::usage, "`" + steps_[bad].name + "` does not come from `" + steps_[good].name + "`", {}, {}};
    if (chain_.size() < 2)
      return Error{ErrorKind::usage, "there is no stage between the good one and the bad one", {}, {}};
    return ok_status();
  }

  Result<Answer> judge(const std::string& bytes) {
    return args_.has("fails") ? judge_by_command(bytes) : judge_by_run(bytes);
  }

  Result<Answer> judge_by_command(const std::string& bytes) {
    SG_ASSIGN(TempFolder folder, TempFolder::make("sg-recipe"));
    SG_TRY(cli::write_whole(folder.file("graph.sg"), bytes));
    SG_ASSIGN(Finished done,
              run_process({"/bin/sh", "-c", cli::command_about(args_.text("fails"), "\"$0\""), folder.file("graph.sg")},
                          {}, "-"));
    if (done.code == kNotRunnable || done.code == kNotFound)
      return Error{ErrorKind::usage,
                   "the shell cannot run `" + args_.text("fails") + "`" + indented("\n" + done.errors),
                   {},
                   "is it executable, and its path given (./NAME)?"};
    return done.code == 0 ? Answer::bad : done.code == kCannotTell ? Answer::unknown : Answer::good;
  }

  // Runs with the inputs of the last stage's own run, or made-up ones if it has none. Good = bitwise equal to the good
  // step.
  Result<Answer> judge_by_run(const std::string& bytes) {
    if (!reference_) {
      SG_ASSIGN(TempFolder folder, TempFolder::make("sg-recipe"));
      reference_.emplace(std::move(folder));
      SG_ASSIGN(Finished good, run_on(*results_[chain_.front()].bytes, {"--outputs", values_of_good()}));
      if (good.code != 0) {
        std::string why = "`" + steps_[chain_.front()].name + "` does not run" + indented("\n" + good.errors);
        return Error{ErrorKind::cannot_apply, why, steps_[chain_.front()].where,
                     "say with --fails what is bad, or give the last stage a `run`"};
      }
    }
    SG_ASSIGN(Finished done, run_on(bytes, {"--expect", values_of_good(), "--bitwise"}));
    if (done.code == kRankFailed) return Answer::bad;
    return done.code == 0 ? Answer::good : done.code == 1 ? Answer::bad : Answer::unknown;
  }

  std::string values_of_good() const { return reference_->file("out{r}.safetensors"); }

  Result<Finished> run_on(const std::string& bytes, const std::vector<std::string>& more) {
    std::vector<std::string> words = {cli::folder_of_this() + "sg-run", "-"};
    const std::vector<RunCheck>& runs = steps_[chain_.back()].runs;
    OptionValues options = runs.empty() ? OptionValues{{"init", "seed:0", {}, false}} : runs[0].options;
    std::erase_if(options, is_about_comparing);
    for (const std::vector<std::string>& part : {command_words(options), more})
      words.insert(words.end(), part.begin(), part.end());
    return run_process(words, bytes, "-");
  }

  Result<Answer> judge_step(uint32_t step) { return judge(*results_[step].bytes); }

  Result<Answer> judge_aloud(size_t position) {
    SG_ASSIGN(Answer answer, judge_step(chain_[position]));
    args_.report().note(steps_[chain_[position]].name + " is " + word_of(answer));
    return answer;
  }

  Status require(uint32_t step, Answer wanted) {
    SG_ASSIGN(Answer answer, judge_step(step));
    if (answer == wanted) return ok_status();
    if (answer == Answer::unknown)
      return Error{
          ErrorKind::cannot_apply,
          "`" + steps_[step].name + "` cannot be judged: " +
              (args_.has("fails") ? "the command says nothing about it: it exits 125" : "sg-run does not run it"),
          steps_[step].where, "bisection needs to know that the first is good and the last bad"};
    return wanted == Answer::good ? bad_from_the_start() : good_to_the_end();
  }

  Error bad_from_the_start() const {
    const Step& first = steps_[chain_.front()];
    if (args_.has("fails"))
      return {ErrorKind::cannot_apply,
              "`" + first.name + "`, where the search begins, is bad: `" + args_.text("fails") + "` exits 0 for it",
              first.where, "name a good one: bisect RECIPE GOOD BAD"};
    return {ErrorKind::cannot_apply, "`" + first.name + "` gives other bits when it runs again", first.where,
            "say with --fails COMMAND what is bad"};
  }

  Error good_to_the_end() const {
    const Step &first = steps_[chain_.front()], &last = steps_[chain_.back()];
    if (args_.has("fails"))
      return {ErrorKind::cannot_apply,
              "nothing to find: `" + last.name + "`, where the search ends, is good: `" + args_.text("fails") +
                  "` does not exit 0 for it",
              last.where, "name a bad one: bisect RECIPE GOOD BAD"};
    return {ErrorKind::cannot_apply, "nothing to find: `" + last.name + "` gives the same bits as `" + first.name + "`",
            last.where, "--fails COMMAND asks another question than for bits"};
  }

  // Positions in the chain: the last good step, and the first known to be bad. None between them could be judged.
  struct Found {
    size_t good, bad;
  };

  Result<Found> search() {
    size_t good = 0, bad = chain_.size() - 1;
    size_t end = bad;  // those from here to `bad` cannot be judged
    while (end - good > 1) {
      const size_t middle = (good + end) / 2;
      size_t at = middle;
      SG_ASSIGN(Answer answer, judge_aloud(at));
      while (answer == Answer::unknown && ++at < end) {
        SG_ASSIGN(answer, judge_aloud(at));
      }
      if (answer == Answer::good) {
        good = at;
      } else {
        if (answer == Answer::bad) bad = at;
        end = middle;
      }
    }
    return Found{good, bad};
  }

  const std::string& input_of(uint32_t stage) const { return *results_[steps_[stage].from].bytes; }

  // Options without which the stage's result is good.
  Result<std::vector<std::string>> guilty_options(uint32_t index) {
    const Step& step = steps_[index];
    std::vector<std::string> out;
    for (size_t i = 0; i < step.options.size(); ++i) {
      Step less = step;
      less.options.erase(less.options.begin() + static_cast<std::ptrdiff_t>(i));
      Result<std::string> made = run_stage(less, input_of(index), &session_.cache, args_.has("pipes"));
      if (!made.ok()) continue;  // the stage needs it
      SG_ASSIGN(Answer answer, judge(*made));
      if (answer == Answer::good)
        out.push_back("--" + step.options[i].name + (step.options[i].is_flag ? "" : " " + step.options[i].value));
    }
    return out;
  }

  Result<Narrowed> guilty_nodes(uint32_t index) {
    NarrowOptions options{args_.has("pipes"), [&](const std::string& sealed) { return judge(sealed); },
                          [&](const std::string& what) { args_.report().note(what); }};
    return narrow_to_nodes(steps_[index], input_of(index), &session_.cache, options);
  }

  const cli::Args& args_;
  Session& session_;
  const std::vector<Step>& steps_;
  std::vector<uint32_t> chain_;
  std::vector<StepResult> results_;
  std::optional<TempFolder> reference_;  // results of the good step
};

}  // namespace

Result<int> bisect(const cli::Args& args, Session* session) { return Bisection(args, session).run(); }

}  // namespace sg::recipe
