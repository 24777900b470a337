#include "tools/sweep/evaluate.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "libgraph/base/sha256.h"
#include "tools/recipe/executor.h"
#include "tools/recipe/key.h"
#include "tools/recipe/name_hint.h"

namespace sg::sweep {
namespace {

using recipe::Key;
using recipe::Plan;
using recipe::Step;

// Files that the recipe writes or compares with belong to a single graph; a sweep has many points.
void forget_files(recipe::Recipe* recipe) {
  for (recipe::StageSpec& s : recipe->stages) {
    s.output = s.expect = s.ignore = {};
  }
}

std::string text_of(const recipe::OptionValues& options) {
  std::string out;
  for (const recipe::OptionValue& o : options) out += o.name + "\1" + o.value + (o.is_flag ? "\2" : "\3");
  return out;
}

// A step's work as text: equal text, equal work. `of(step)`: what stands for a step that it reads.
template <class Of>
std::string words_of(const Step& step, const Of& of) {
  auto read = [&](uint32_t other) { return other == Step::kNone ? std::string() : of(other); };
  std::string out = step.tool + "\n" + step.source + "\n" + text_of(step.options) + "\n" + read(step.from);
  for (const recipe::Assertion& a : step.asserts) out += "\n" + a.word.text;
  for (const recipe::RunCheck& r : step.runs) out += "\n" + text_of(r.options) + read(r.bitwise_to);
  return out + "\n" + step.machine;
}

// Merges steps that do the same: readers of later ones read the first, and the later ones are no longer needed.
std::vector<uint32_t> merge_equal_steps(Plan* plan) {
  std::map<std::string, uint32_t> first;
  std::vector<uint32_t> stands_for;
  auto number = [](uint32_t step) { return std::to_string(step); };
  for (uint32_t i = 0; i < plan->steps.size(); ++i) {
    Step& s = plan->steps[i];
    if (s.from != Step::kNone) s.from = stands_for[s.from];
    for (recipe::RunCheck& r : s.runs)
      if (r.bitwise_to != recipe::RunCheck::kNone) r.bitwise_to = stands_for[r.bitwise_to];
    stands_for.push_back(first.emplace(words_of(s, number), i).first->second);
  }
  return stands_for;
}

// Attributes a problem with `--set a=1` to the axis that the user gave: `--over a`.
Diagnostic as_axis(Diagnostic d, const Point& point) {
  constexpr std::string_view kSet = "--set ";
  if (!d.where.file.starts_with(kSet)) return d;
  const std::string name = d.where.file.substr(kSet.size(), d.where.file.find('=') - kSet.size());
  const auto axis = std::ranges::find(point.values, name, [](const auto& value) { return value.first; });
  if (axis != point.values.end()) d.where.file = "--over " + name;
  return d;
}

// What options say of the values of some points.
struct Refusal {
  Diagnostic told;
  std::string stage;
  std::set<size_t> points;
};

// "AXIS=VALUE" where the points that are refused are those with this value; else empty. A value that all points have is
// known to be at fault only if it is of an option of that stage.
std::string refused_value(const Refusal& refusal, const std::vector<Point>& points) {
  std::string out;
  for (const auto& value : points[*refusal.points.begin()].values) {
    const auto& [axis, text] = value;
    size_t those = 0;
    bool are_those = true;
    for (size_t i = 0; i < points.size(); ++i) {
      if (std::ranges::count(points[i].values, value) == 0) continue;
      ++those;
      are_those &= refusal.points.contains(i);
    }
    const size_t dot = std::min(axis.rfind('.'), axis.size());
    const bool is_of_stage = axis.substr(0, dot) == refusal.stage;
    if (!are_those || those != refusal.points.size() || (those == points.size() && !is_of_stage)) continue;
    const bool is_named = is_of_stage && refusal.told.message.find("--" + axis.substr(dot + 1)) != std::string::npos;
    if (out.empty() || is_named) out = axis + "=" + text;
  }
  return out;
}

}  // namespace

// A batch of points being evaluated.
struct Evaluator::Work {
  std::vector<Point>* points;
  Plan plan;
  std::vector<size_t> point_of;  // by variant of the plan
  std::vector<uint32_t> last;    // by point: the step whose result is scored
  std::vector<bool> done;
  std::mutex mutex;                          // guards everything below, and the points
  std::map<uint32_t, Result<Score>> scores;  // by step
  std::map<uint32_t, Error> failures;        // by step: it failed, or a check did
  Status written = ok_status();

  // The first failed step on the way to a point's result.
  const Error* failure_of(size_t point) const {
    const Error* out = nullptr;
    for (uint32_t s = last[point]; s != Step::kNone; s = plan.steps[s].from)
      if (auto at = failures.find(s); at != failures.end()) out = &at->second;
    return out;
  }
};

void Evaluator::make_plan(Work* work, Diagnostics* problems) {
  Diagnostics found(problems->max_errors());
  make_plan_as_set(work, &found);
  const std::vector<Point>& points = *work->points;
  for (const Diagnostic& d : found.list()) problems->add(points.empty() ? d : as_axis(d, points[0]));
}

// Passes the axes' values to the recipe in the same way as --set.
void Evaluator::make_plan_as_set(Work* work, Diagnostics* problems) {
  const std::vector<Point>& points = *work->points;
  std::vector<recipe::Variant> variants;
  for (const Point& p : points) {
    std::vector<std::string> set = options_.set;
    for (const auto& [axis, value] : p.values) set.push_back(axis + "=" + value);
    for (recipe::Variant& v : recipe::expand(recipe_, set, problems)) {
      v.name = p.name();
      if (const recipe::Word& machine = v.recipe.machine;
          !scoring_.recipe_machine.empty() && machine.text != scoring_.recipe_machine)
        problems->error("sweep", "the axis decides the machine, and all points of a sweep are simulated on one",
                        machine.where, "sweep each machine by itself, or give --machine");
      forget_files(&v.recipe);
      variants.push_back(std::move(v));
      work->point_of.push_back(static_cast<size_t>(&p - points.data()));
    }
    if (problems->has_errors()) return;
  }
  work->plan = recipe::make_plan(variants, &tools_, problems);
  if (problems->has_errors()) return;
  const std::vector<Step>& steps = work->plan.steps;
  std::vector<std::string> stages;
  for (size_t point = 0; point < points.size(); ++point) {
    uint32_t found = Step::kNone;
    const size_t prefix = points[point].name().size() + 1;  // "axis=value/"
    for (uint32_t i = 0; i < steps.size(); ++i) {
      if (work->point_of[steps[i].variant] != point) continue;
      const std::string_view stage = std::string_view(steps[i].name).substr(prefix);
      if (point == 0) stages.emplace_back(stage);
      if (options_.stage.empty() || stage == options_.stage) found = i;
    }
    if (found == Step::kNone) {
      problems->error("sweep", "the recipe has no stage `" + options_.stage + "`",
                      {"--stage " + options_.stage, 0, 0, {}, {}, true},
                      recipe::name_hint(options_.stage, stages, "it has"));
      return;
    }
    work->last.push_back(found);
  }
}

// Values that options refuse, without running anything. A refusal of all points that have a value is a mistake in that
// value, one of all points is a mistake in the recipe; any other comes of values together, and those points fail.
void Evaluator::check_given(const Work& work, Diagnostics* problems) const {
  const std::vector<Point>& points = *work.points;
  std::map<std::string, Refusal> refusals;
  for (const Step& step : work.plan.steps) {
    Diagnostics found(problems->max_errors());
    recipe::check_values(step, options_.checks, &found);
    const size_t point = work.point_of[step.variant];
    for (const Diagnostic& d : found.list()) {
      Refusal& refusal = refusals[print_location(d.where) + d.message];
      refusal.told = d;
      refusal.stage = step.name.substr(points[point].name().size() + 1);
      refusal.points.insert(point);
    }
  }
  for (auto& [text, refusal] : refusals) {
    const std::string value = refused_value(refusal, points);
    if (!value.empty()) refusal.told.where = {"--over " + value, 0, 0, {}, {}, true};
    if (!value.empty() || refusal.points.size() == points.size()) problems->add(refusal.told);
  }
}

// The key of each point, from what its steps are made of; needs no graph.
Status Evaluator::find_keys(const std::vector<uint32_t>& stands_for, Work* work) {
  SG_ASSIGN(const std::string scoring, scoring_.key());
  std::vector<std::string> keys;
  for (uint32_t i = 0; i < work->plan.steps.size(); ++i) {
    if (stands_for[i] != i) {
      keys.push_back(keys[stands_for[i]]);
      continue;
    }
    const Step& s = work->plan.steps[i];
    SG_ASSIGN(Key key, recipe::key_of(s, s.from == Step::kNone ? "" : keys[s.from]));
    std::string checks;
    if (options_.checks) checks = words_of(s, [&](uint32_t read) { return keys[read]; });
    keys.push_back(hex(sha256(key.digest + "\n" + checks)));
  }
  for (size_t i = 0; i < work->last.size(); ++i)
    (*work->points)[i].key = hex(sha256(keys[work->last[i]] + "\n" + scoring));
  return ok_status();
}

// The point is settled, by its score or by a failure. REQUIRES: work->mutex is held
void Evaluator::finish(size_t index, Work* work) {
  if (work->done[index]) return;
  Point& point = (*work->points)[index];
  if (const Error* failure = work->failure_of(index)) {
    point.failure = *failure;
  } else {
    auto score = work->scores.find(work->last[index]);
    if (score == work->scores.end()) return;
    if (score->second.ok()) {
      point.measured = true;
      point.step_seconds = score->second->step_seconds;
      point.peak_bytes = score->second->peak_bytes;
    } else {
      point.failure = score->second.error();
      if (point.failure->where.file.empty()) point.failure->where = work->plan.steps[work->last[index]].where;
    }
  }
  work->done[index] = true;
  known_[point.key] = point;
  Status added = file_->add(point);
  if (work->written.ok() && !added.ok()) work->written = added;
  if (options_.told) options_.told(point);
}

Status Evaluator::check(std::vector<Point>* points, Diagnostics* problems) {
  Work work{points, {}, {}, {}, {}, {}, {}, {}, ok_status()};
  return prepare(&work, true, problems);
}

Status Evaluator::prepare(Work* work, bool are_given, Diagnostics* problems) {
  make_plan(work, problems);
  if (problems->has_errors()) return ok_status();
  if (are_given) check_given(*work, problems);
  if (problems->has_errors()) return ok_status();
  return options_.planned ? options_.planned(work->plan) : ok_status();
}

Status Evaluator::evaluate(std::vector<Point>* points, bool are_given, Diagnostics* problems) {
  Work work{points, {}, {}, {}, {}, {}, {}, {}, ok_status()};
  SG_TRY(prepare(&work, are_given, problems));
  if (problems->has_errors()) return ok_status();
  const std::vector<uint32_t> stands_for = merge_equal_steps(&work.plan);
  for (uint32_t& step : work.last) step = stands_for[step];
  SG_TRY(find_keys(stands_for, &work));
  std::vector<uint32_t> wanted;
  for (Point& p : *points) {
    auto at = known_.find(p.key);
    const bool is_known = at != known_.end() && at->second.is_final();
    work.done.push_back(is_known);
    if (!is_known) {
      wanted.push_back(work.last[work.done.size() - 1]);
      continue;
    }
    Point found = at->second;
    found.values = p.values;
    p = std::move(found);
  }
  if (wanted.empty()) return ok_status();
  std::set<uint32_t> scored(wanted.begin(), wanted.end());
  recipe::ExecuteOptions options;
  options.threads = scoring_.runs ? 1 : options_.threads;  // timed runs need the machine for themselves
  options.checks = options_.checks;
  options.outputs = false;
  options.examine = [&](size_t step, const recipe::StepResult& result) {
    const auto at = static_cast<uint32_t>(step);
    if (!scored.contains(at) || !result.failed_checks.empty() || result.error) return;
    Result<Score> score = score_of(scoring_, *result.bytes, work.plan.steps[step].name);
    std::lock_guard lock(work.mutex);
    work.scores.emplace(at, std::move(score));
  };
  auto told = [&](size_t step, const recipe::StepResult& result) {
    std::lock_guard lock(work.mutex);
    const auto at = static_cast<uint32_t>(step);
    if (result.error) {
      Error error = *result.error;
      error.message = work.plan.steps[step].tool + ": " + error.message;
      error.where.path.clear();  // the node differs between points
      work.failures.emplace(at, std::move(error));
    } else if (!result.failed_checks.empty()) {
      const Diagnostic& d = result.failed_checks[0];
      work.failures.emplace(at, Error{ErrorKind::negative, d.message, d.where, d.hint});
    }
    for (size_t i = 0; i < points->size(); ++i)
      if (work.failures.contains(at) || work.last[i] == at) finish(i, &work);
  };
  recipe::Executor(work.plan, &cache_, options, told).run(wanted);
  return work.written;
}

}  // namespace sg::sweep
