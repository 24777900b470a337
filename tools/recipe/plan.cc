#include "tools/recipe/plan.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "libgraph/base/human.h"
#include "libgraph/base/joined.h"
#include "libgraph/op_pattern.h"
#include "libgraph/sim/machine.h"
#include "libgraph/sim/machine_file.h"
#include "libpasses/pass_order.h"
#include "libpasses/pipeline.h"
#include "tools/cli/cli_input.h"
#include "tools/cli/cli_patterns.h"
#include "tools/commands.h"
#include "tools/recipe/files.h"
#include "tools/recipe/name_hint.h"
#include "tools/run/run_options.h"

namespace sg::recipe {
namespace {

// What a recipe has in place of a command that is no pass.
struct Elsewhere {
  std::string_view command, instead;
};
constexpr Elsewhere kElsewhere[] = {
    {"import", "an input has it: `inputs: {step: {import: SOURCE}}`"},
    {"run", "it stands below a pass: `- clean: {}`, and on the next line `run: {init: 'seed:0'}`"},
    {"diff", "a golden stands below a pass: `- clean: {}`, and on the next line `expect: GOLDEN`"},
    {"stat", "assertions stand below a pass: `- clean: {}`, and on the next line `assert: [nodes < 200k]`"},
    {"sim", "assertions stand below a pass: `- clean: {}`, and on the next line `assert: [exposed_comm < 5%]`"},
    {"print", "a file stands below a pass: `- clean: {}`, and on the next line `output: FILE.txt`"},
    {"pipe", "each pass is a stage: `stages: [clean, remat]`"},
};

// Who reads or writes which file. Names that may be one file for some rank (`r{r}.sg`, `r0.sg`) are the same.
class FileUsers {
 public:
  // Who was first to use it; empty: nobody.
  std::string add(const std::string& file, const std::string& who) {
    const std::string place = cli::final_place(file);
    std::string first = user_of(place);
    by_place_.emplace(place, who);
    if (cli::is_pattern(place)) patterns_.emplace(place, who);
    return first;
  }

 private:
  std::string user_of(const std::string& place) const {
    if (const auto at = by_place_.find(place); at != by_place_.end()) return at->second;
    for (const auto& [other, user] : cli::is_pattern(place) ? by_place_ : patterns_)
      if (cli::may_be_one(other, place)) return user;
    return {};
  }

  std::map<std::string, std::string> by_place_, patterns_;
};

class Planner {
 public:
  Planner(ToolTable* tools, Diagnostics* problems) : tools_(*tools), problems_(*problems) {}

  void add(const Variant& variant) {
    recipe_ = &variant.recipe;
    prefix_ = variant.name.empty() ? "" : variant.name + "/";
    known_.clear();
    for (const std::string& file : recipe_->files) files_.add(file, "the recipe");
    check_machine();
    for (const InputSpec& i : recipe_->inputs) add_input(i);
    uint32_t before = recipe_->inputs.size() == 1 && !plan_.steps.empty()
                          ? static_cast<uint32_t>(plan_.steps.size() - 1)
                          : Step::kNone;
    for (const StageSpec& s : recipe_->stages) before = add_stage(s, before);
    ++plan_.variants;
  }

  Plan finish() {
    warn_of_orders();
    refuse_equal_outputs();
    return std::move(plan_);
  }

 private:
  void error(const Location& where, const std::string& message, const std::string& hint = {}) {
    problems_.error("recipe", message, where, hint);
  }

  void add_input(const InputSpec& input) {
    Step step;
    step.name = prefix_ + input.name.text;
    step.where = input.name.where;
    step.source = input.source.text;
    step.kind = input.imported ? StepKind::import : StepKind::graph;
    step.tool = input.imported ? "sg-import" : "graph";
    if (input.imported) {
      Result<const std::vector<OptionRow>*> rows = tools_.of_tool("import");
      if (rows.ok())
        step.options = values_of(input.options, "sg-import", **rows, {}, &step.has_all_options, &problems_);
      else error(step.where, rows.error().message, rows.error().hint);
    }
    if (!input.source.is_mistake) {
      if (Result<std::vector<std::string>> files = matching_files(step.source); !files.ok()) {
        error(input.source.where, files.error().message, files.error().hint);
      } else {
        step.sources = std::move(*files);
        check_sources(step, input.source.where);
      }
    }
    remember(input.name.text, std::move(step));
  }

  void check_sources(const Step& step, const Location& where) {
    if (step.sources.empty()) error(where, "no file matches " + step.source);
    if (step.sources.size() > 1 && step.kind == StepKind::graph)
      error(where, "a graph is one file, or a rank pattern: " + plural(step.sources.size(), "file") + " match",
            "'rank{r}.sg' is one of several ranks");
    for (const std::string& source : step.sources) {
      Result<std::vector<std::string>> files = cli::files_of(source);
      std::error_code missing;
      if (!files.ok()) error(where, files.error().message, files.error().hint);
      else if (!std::filesystem::exists((*files)[0], missing)) error(where, "no such file: " + (*files)[0]);
    }
  }

  uint32_t add_stage(const StageSpec& stage, uint32_t before) {
    Step step;
    step.name = prefix_ + stage.name;
    step.tool = "sg-" + stage.tool.text;
    step.where = stage.tool.where;
    step.kind = StepKind::pass;
    step.from = stage.from.empty() ? before : resolve(stage.from);
    if (stage.from.empty() && !stage.from.is_mistake && before == Step::kNone && recipe_->has_all_names)
      error(stage.tool.where, "`" + stage.name + "` has no input",
            recipe_->inputs.empty() ? "the recipe lists none: `inputs:`"
                                    : "say which: `from: " + recipe_->inputs[0].name.text + "`");
    step.pass = find_pass(stage.tool.text);
    if (step.pass) add_options(stage, &step);
    else if (!stage.tool.empty() && !stage.tool.is_mistake) unknown_tool(stage.tool);
    if (!stage.expect.is_mistake) step.expect = stage.expect.text;
    if (!stage.output.is_mistake) step.output = stage.output.text;
    if (Result<DiffOptions> ignore = parse_ignore(stage.ignore.text); ignore.ok()) step.ignore = *ignore;
    else if (!stage.ignore.is_mistake) error(stage.ignore.where, ignore.error().message, ignore.error().hint);
    step.machine = recipe_->machine.empty() ? "h100-8" : recipe_->machine.text;
    add_asserts(stage, &step);
    for (const RunSpec& r : stage.runs) add_run(r, &step);
    return remember(stage.name, std::move(step));
  }

  void add_options(const StageSpec& stage, Step* step) {
    step->options = values_of(stage.options, step->tool, tools_.of_pass(*step->pass), kStageKeys,
                              &step->has_all_options, &problems_);
    step->has_all_options &= stage.has_all_options;
  }

  uint32_t remember(const std::string& name, Step step) {
    auto index = static_cast<uint32_t>(plan_.steps.size());
    known_[name] = index;
    step.variant = static_cast<uint32_t>(plan_.variants);
    plan_.steps.push_back(std::move(step));
    return index;
  }

  void unknown_tool(const Word& tool) {
    std::vector<std::string> passes;
    for (const PassInfo* p : all_passes()) passes.emplace_back(p->name);
    const std::string_view command = std::string_view(tool.text).substr(tool.text.starts_with("sg-") ? 3 : 0);
    const auto* other = std::ranges::find(kElsewhere, command, &Elsewhere::command);
    if (std::ranges::count(cli::kCommands, command) != 0)
      return error(tool.where, "`" + tool.text + "` is a command, but no pass",
                   other == std::end(kElsewhere) ? "stages are " + joined(passes, ", ") : std::string(other->instead));
    error(tool.where, "there is no pass `" + tool.text + "`", name_hint(tool.text, passes, "stages are"));
  }

  // An earlier stage or input; "input" also refers to the only input.
  uint32_t resolve(const Word& name) {
    auto at = known_.find(name.text);
    if (at != known_.end()) return at->second;
    if (name.text == "input" && recipe_->inputs.size() == 1) return known_[recipe_->inputs[0].name.text];
    if (name.is_mistake || !recipe_->has_all_names) return Step::kNone;
    std::vector<std::string> names;
    for (const auto& [known, index] : known_) names.push_back(known);
    error(name.where, "no stage or input `" + name.text + "` comes before this one",
          name_hint(name.text, names, "before it are"));
    return Step::kNone;
  }

  void add_asserts(const StageSpec& stage, Step* step) {
    for (const Word& w : stage.asserts) {
      if (w.is_mistake) continue;
      Result<Assertion> a = parse_assertion(w);
      if (!a.ok()) {
        error(a.error().where, a.error().message, a.error().hint);
        continue;
      }
      warn_of_unknown_op(*a);
      step->asserts.push_back(std::move(*a));
    }
  }

  // Such an assertion says nothing about a graph without that op. The graph may still contain it, as a custom op of
  // some library.
  void warn_of_unknown_op(const Assertion& a) {
    if (a.op.empty() || names_an_op(a.op)) return;
    const std::string hint = nearest_op(a.op).hint();
    problems_.warning("assert", "`" + a.word.text + "`: no op in docs/ops.md is called `" + a.op + "`", a.word.where,
                      hint.empty() ? "sg-stat --by op lists the ops of a graph" : hint);
  }

  void check_machine() {
    if (recipe_->machine.empty() || recipe_->machine.is_mistake) return;
    Result<Machine> machine = find_machine(recipe_->machine.text);
    if (!machine.ok()) error(recipe_->machine.where, machine.error().message, machine.error().hint);
  }

  void add_run(const RunSpec& run, Step* step) {
    RunCheck check{run.where, {}, true, RunCheck::kNone, ranks_of(run.ranks)};
    Result<const std::vector<OptionRow>*> rows = tools_.of_tool("run");
    if (!rows.ok()) return error(run.where, rows.error().message, rows.error().hint);
    check.options = values_of(run.options, "sg-run", **rows, {}, &check.has_all_options, &problems_);
    check.has_all_options &= run.has_all_options;
    if (!run.bitwise_to.empty()) check.bitwise_to = resolve(run.bitwise_to);
    if (!run.bitwise_to.empty())
      for (const OptionValue& o : check.options)
        if (is_about_comparing(o))
          error(run.where, "`bitwise_to` compares the outputs itself: leave out `" + o.name + "`");
    step->runs.push_back(std::move(check));
  }

  uint32_t ranks_of(const Word& word) {
    if (word.empty() || word.is_mistake) return 0;
    uint32_t out = 0;
    const char* end = word.text.data() + word.text.size();
    auto [at, problem] = std::from_chars(word.text.data(), end, out);
    if (problem != std::errc() || at != end || out == 0)
      error(word.where, "`ranks` takes the number of ranks of the job, not `" + word.text + "`");
    return out;
  }

  void warn_of_orders() {
    const Job nothing;
    for (const Step& last : plan_.steps) {
      if (last.kind != StepKind::pass || !last.pass) continue;
      std::vector<Stage> chain;
      for (const Step* s = &last; s->kind == StepKind::pass && s->pass; s = &plan_.steps[s->from]) {
        chain.push_back(Stage{s->pass, pass_options(s->options)});
        if (s->from == Step::kNone) break;
      }
      std::ranges::reverse(chain);
      for (const std::string& line : order_warnings(nothing, chain, chain.size() - 1))
        problems_.warning("pass-order", last.name + ": " + line, last.where);
    }
  }

  // No step writes a file that the recipe consists of, or that another step reads or writes.
  void refuse_equal_outputs() {
    for (const Step& s : plan_.steps) {
      const auto reads = [&](const std::string& file) { files_.add(file, "`" + s.name + "`"); };
      if (is_machine_file(s.machine)) files_.add(s.machine, "`machine`");
      for (const std::string& source : s.sources) reads(source);
      for (const OptionValue& o : s.options)
        if (o.is_path()) reads(o.path());
      for (const RunCheck& r : s.runs)
        for (const OptionValue& o : r.options)
          if (o.is_path()) reads(o.path());
    }
    for (const Step& s : plan_.steps) {
      for (const std::string& file : {s.output, s.expect}) {
        if (file.empty()) continue;
        const std::string who = "`" + s.name + "`";
        if (const std::string other = files_.add(file, who); !other.empty())
          error(s.where, other + " and " + who + " use the same file: " + file,
                !prefix_.empty() ? "put a parameter into its name: ${policy}" : "write to another file");
      }
    }
  }

  ToolTable& tools_;
  Diagnostics& problems_;
  const Recipe* recipe_ = nullptr;
  std::string prefix_;
  std::map<std::string, uint32_t> known_;
  FileUsers files_;
  Plan plan_;
};

// Where the value of the option that is to blame stands; the stage if there is none, or several of them.
Location place_of_mistake(const Error& error, const OptionValues& options, const Location& stage) {
  if (error.option.empty() || std::ranges::count(options, error.option, &OptionValue::name) != 1) return stage;
  return std::ranges::find(options, error.option, &OptionValue::name)->where;
}

}  // namespace

bool is_about_comparing(const OptionValue& option) {
  constexpr std::string_view kNames[] = {"expect", "bitwise", "rtol", "atol", "compare"};
  return std::ranges::count(kNames, option.name) != 0;
}

void check_values(const Plan& plan, Diagnostics* problems) {
  std::set<std::string> said;  // variants of a matrix share most stages
  for (const Step& s : plan.steps) {
    Diagnostics found(problems->max_errors());
    check_values(s, true, &found);
    for (const Diagnostic& d : found.list())
      if (said.insert(print_location(d.where) + d.message).second) problems->add(d);
  }
}

void check_values(const Step& step, bool has_data, Diagnostics* problems) {
  auto say = [&](const Location& where, const std::string& what, const Error& error) {
    const std::string at = print_location(error.where);
    problems->error("option", what + ": " + (at.empty() ? "" : at + ": ") + error.message, where, error.hint);
  };
  // Whether all are there.
  auto check_files = [&](const OptionValues& options) {
    bool all = true;
    for (const OptionValue& o : options) {
      if (!o.is_path()) continue;
      Result<std::vector<std::string>> files = files_named(o.path());
      if (!files.ok()) say(o.where, "`" + o.name + "`", files.error());
      all &= files.ok();
    }
    return all;
  };
  if (check_files(step.options) && step.has_all_options && step.pass) {
    Status checked = check_options(*step.pass, pass_options(step.options));
    if (!checked.ok()) say(place_of_mistake(checked.error(), step.options, step.where), step.tool, checked.error());
  }
  for (const RunCheck& r : step.runs) {
    if ((has_data && !check_files(r.options)) || !r.has_all_options) continue;
    const auto checked = cli::check_run_words(command_words(r.options));
    if (!checked.ok()) say(place_of_mistake(checked.error(), r.options, r.where), "sg-run", checked.error());
  }
}

Plan make_plan(const std::vector<Variant>& variants, ToolTable* tools, Diagnostics* problems) {
  Planner planner(tools, problems);
  for (const Variant& v : variants) planner.add(v);
  return planner.finish();
}

}  // namespace sg::recipe
