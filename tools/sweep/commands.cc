#include "tools/sweep/commands.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "libgraph/base/escape.h"
#include "libgraph/base/human.h"
#include "libgraph/base/json.h"
#include "tools/cli/cli_siblings.h"
#include "tools/cli/cli_targets.h"
#include "tools/cli/cli_words.h"
#include "tools/cli/cli_write.h"
#include "tools/recipe/session.h"
#include "tools/run/run_options.h"
#include "tools/sweep/axis.h"
#include "tools/sweep/evaluate.h"
#include "tools/sweep/front.h"
#include "tools/sweep/plot.h"

namespace sg::sweep {
namespace {

using cli::Args;

constexpr size_t kMaxPoints = 10'000;
constexpr size_t kMaxReasons = 8;  // shown in the report, for points that failed

// Everything a sweep needs, from the command line and the recipe.
struct Sweep {
  recipe::Recipe recipe;
  std::vector<Axis> axes;
  Scoring scoring;
  EvaluateOptions options;
  std::optional<double> limit_bytes;
  std::string points_file, about;
};

// The option that an axis STAGE.OPTION names; null = a parameter, or a mistake that is reported later.
const PassOption* option_of(const recipe::Recipe& recipe, const std::string& axis) {
  const size_t dot = axis.rfind('.');
  if (dot == axis.npos) return nullptr;
  for (const recipe::StageSpec& s : recipe.stages) {
    const PassInfo* pass = s.name == axis.substr(0, dot) ? find_pass(s.tool.text) : nullptr;
    if (!pass) continue;
    for (const PassOption& o : pass->options)
      if (o.name == axis.substr(dot + 1)) return &o;
  }
  return nullptr;
}

bool takes_whole_numbers(const PassOption& option) {
  return option.argument == "N" || option.argument.starts_with("N|");
}

bool is_whole_number(const std::string& s) { return !s.empty() && s.find_first_not_of("0123456789") == s.npos; }

// The axes of the recipe's matrix that neither --set nor --over overrides, then those of --over.
Result<std::vector<Axis>> axes_of(const Args& args, const recipe::Recipe& recipe) {
  std::vector<Axis> out, over;
  std::set<std::string> named;
  for (const std::string& text : args.all("over")) {
    SG_ASSIGN(Axis axis, parse_axis(text));
    if (!named.insert(axis.name).second)
      return Error{ErrorKind::usage, "--over " + axis.name + " is there twice", {}, {}};
    if (const PassOption* option = option_of(recipe, axis.name)) axis.whole = takes_whole_numbers(*option);
    over.push_back(std::move(axis));
  }
  for (const std::string& text : args.all("set")) {
    const std::string name = text.substr(0, text.find('='));
    if (named.contains(name))
      return Error{ErrorKind::usage, name + " is swept over and set", {}, "leave out --set " + text};
    named.insert(name);
  }
  for (const recipe::MatrixAxis& axis : recipe.matrix) {
    if (named.contains(axis.name.text)) continue;
    Axis own{axis.name.text, {}, false};
    for (const recipe::Word& value : axis.values) own.values.push_back(value.text);
    own.whole = std::ranges::all_of(own.values, is_whole_number);
    out.push_back(std::move(own));
  }
  out.insert(out.end(), over.begin(), over.end());
  size_t count = 1;
  for (const Axis& axis : out) count = std::min(kMaxPoints + 1, count * axis.values.size());
  if (count > kMaxPoints)
    return Error{ErrorKind::usage, "these are more than 10,000 points", {}, "take fewer values, and --search"};
  return out;
}

std::vector<Point> grid_of(const std::vector<Axis>& axes) {
  std::vector<Point> out(1);
  for (const Axis& axis : axes) {
    std::vector<Point> wider;
    for (const Point& p : out)
      for (const std::string& value : axis.values) {
        wider.push_back(p);
        wider.back().values.emplace_back(axis.name, value);
      }
    out = std::move(wider);
  }
  return out;
}

Status report(const Args& args, const Diagnostics& problems) {
  return recipe::report_mistakes(args, problems, args.operands()[0]);
}

// The recipe's machine, after applying --set.
std::string machine_of(const Args& args, const recipe::Recipe& recipe) {
  Diagnostics problems;
  std::vector<recipe::Variant> variants = recipe::expand(recipe, args.all("set"), &problems);
  return variants.empty() ? recipe.machine.text : variants[0].recipe.machine.text;
}

// sg-run is to run the step, and to report to sg-sweep.
Status check_run(const std::vector<std::string>& words) {
  constexpr std::string_view kOurs[] = {"json", "output"};
  constexpr std::string_view kNoRun[] = {"plan",      "dry-run",       "print-config", "help",        "help-all",
                                         "help-json", "help-markdown", "help-man",     "completions", "version"};
  Result<std::vector<std::string_view>> given = cli::check_run_words(words);
  if (!given.ok()) {
    given.error().message = "--run: " + given.error().message;
    return std::move(given.error());
  }
  for (const std::string_view name : *given) {
    if (std::ranges::find(kOurs, name) != std::end(kOurs))
      return Error{ErrorKind::usage, "--run: --" + std::string(name) + " is set by sg-sweep", {}, {}};
    if (std::ranges::find(kNoRun, name) != std::end(kNoRun))
      return Error{ErrorKind::usage, "--run must run the step, and --" + std::string(name) + " does not", {}, {}};
  }
  return ok_status();
}

Result<Scoring> scoring_of(const Args& args, const recipe::Recipe& recipe) {
  Scoring out;
  out.runs = args.text("score") == "run";
  if (args.has("run") && !out.runs) return Error{ErrorKind::usage, "--run needs --score run", {}, {}};
  if (args.has("machine") && out.runs) return Error{ErrorKind::usage, "--machine needs --score sim", {}, {}};
  SG_ASSIGN(out.run_words, cli::split_words(args.has("run") ? args.text("run") : "--init seed:0 --steps 3", "--run"));
  if (out.runs) SG_TRY(check_run(out.run_words));
  if (!args.has("machine") && !recipe.machine.empty() && !out.runs) out.recipe_machine = machine_of(args, recipe);
  SG_ASSIGN(out.machine, find_machine(out.recipe_machine.empty() ? args.text("machine") : out.recipe_machine));
  return out;
}

Result<Sweep> read_sweep(const Args& args) {
  if (args.operands().empty())
    return Error{ErrorKind::usage, "which recipe?", {}, "sg-sweep recipe.yaml --over remat.budget=0..1:0.25"};
  Sweep out;
  Diagnostics problems(50);
  out.recipe = recipe::read_recipe(args.operands()[0], &problems);
  SG_TRY(report(args, problems));
  SG_ASSIGN(out.axes, axes_of(args, out.recipe));
  SG_ASSIGN(out.scoring, scoring_of(args, out.recipe));
  out.options.set = args.all("set");
  out.options.stage = args.text("stage");
  out.options.checks = args.has("checks");
  out.options.threads = args.threads();
  if (args.has("peak")) {
    SG_ASSIGN(const int64_t bytes, args.bytes("peak"));
    out.limit_bytes = static_cast<double>(bytes);
  }
  out.points_file = args.has("points") ? args.text("points") : args.operands()[0] + ".sweep.jsonl";
  out.about = out.scoring.runs ? "run with sg-run" : "simulated on " + out.scoring.machine.name;
  if (args.has("plot") && !args.text("plot").ends_with(".svg") && !args.text("plot").ends_with(".html"))
    return Error{ErrorKind::usage, "--plot takes a name that ends in .svg or .html", {}, {}};
  return out;
}

// Reports common to all points only once: mistakes by place, warnings only of the first point.
Diagnostics said_once(const Diagnostics& problems, const std::string& first_point) {
  Diagnostics out(50);
  std::set<std::string> said;
  for (const Diagnostic& d : problems.list()) {
    const bool is_new = said.insert(print_location(d.where) + d.message).second;
    if (is_new && (d.severity == Severity::error || d.message.starts_with(first_point + "/"))) out.add(d);
  }
  return out;
}

std::string line_of(const Point& p) {
  const std::string out = left_cell(p.name(), 40);
  if (!p.measured) return out + "failed: " + p.failure->message.substr(0, p.failure->message.find('\n'));
  return out + human_time(p.step_seconds) + "  " + human_bytes(p.peak_bytes);
}

// The fastest point that fits; null = none.
const Point* best_of(const std::vector<Point>& points, std::optional<double> limit) {
  const Point* best = nullptr;
  for (const Point* p : front_of(points))
    if ((!limit || p->peak_bytes <= *limit) && (!best || p->step_seconds < best->step_seconds)) best = p;
  return best;
}

std::string command_of(const Args& args, const Point& p) {
  std::string out = "sg-recipe run " + shell_word(args.operands()[0]);
  for (const std::string& text : args.all("set")) out += " --set " + shell_word(text);
  for (const auto& [axis, value] : p.values) out += " --set " + shell_word(axis + "=" + value);
  return out;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Groups failed points by reason.
std::string failures_text(const std::vector<Point>& points) {
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (const Point& p : points) {
    if (!p.failure) continue;
    const std::string place = print_location(p.failure->where);
    const std::string why = (place.empty() ? "" : place + ": ") + first_line(p.failure->message);
    auto at = std::ranges::find_if(reasons, [&](const auto& r) { return r.first == why; });
    if (at == reasons.end()) at = reasons.insert(at, {why, {}});
    at->second.push_back(p.name());
  }
  std::string out = reasons.empty() ? "" : "failed\n";
  for (size_t i = 0; i < std::min(reasons.size(), kMaxReasons); ++i) {
    const auto& [why, names] = reasons[i];
    const std::string more = names.size() > 1 ? " and " + plural(names.size() - 1, "other") : "";
    out += "  " + names[0] + more + "\n    " + why + "\n";
  }
  if (reasons.size() > kMaxReasons) out += "  and of " + plural(reasons.size() - kMaxReasons, "other reason") + "\n";
  return out;
}

std::string report_text(const Args& args, const Sweep& sweep, const std::vector<Point>& points) {
  size_t measured = 0, known = 0, width = 8;
  for (const Point& p : points) {
    measured += p.measured;
    known += p.known;
    if (p.on_front) width = std::max(width, p.name().size());
  }
  std::string out = plural(points.size(), "point") + ", " + sweep.about;
  if (known != 0) out += ", " + std::to_string(known) + " known before";
  if (measured != points.size()) out += ", " + std::to_string(points.size() - measured) + " failed";
  out += "\n";
  if (measured != 0) out += "front" + std::string(width - 3, ' ') + "      step        peak\n";
  for (const Point* p : front_of(points)) {
    const std::string name = p->name();
    out += "  " + name + std::string(width - name.size(), ' ') + right_cell(human_time(p->step_seconds), 10);
    out += right_cell(human_bytes(p->peak_bytes), 12) + "\n";
  }
  out += failures_text(points);
  const Point* best = best_of(points, sweep.limit_bytes);
  const std::string limit = sweep.limit_bytes ? " with a peak of at most " + human_bytes(*sweep.limit_bytes) : "";
  if (best) out += "fastest" + limit + ": " + command_of(args, *best) + "\n";
  else if (measured != 0) out += "no point" + limit + "\n";
  return out;
}

std::string report_json(const Args& args, const Sweep& sweep, const std::vector<Point>& points) {
  JsonWriter json;
  json.begin_object().member("schema", "sg-sweep").member("version", 1);
  json.member("recipe", args.operands()[0]).member("score", sweep.scoring.runs ? "run" : "sim");
  if (!sweep.scoring.runs) json.member("machine", sweep.scoring.machine.name);
  json.key("points").begin_array();
  for (const Point& p : points) json.raw(point_json(p));
  json.end_array().key("front").begin_array();
  for (const Point* p : front_of(points)) json.string(p->name());
  json.end_array().key("best");
  const Point* best = best_of(points, sweep.limit_bytes);
  best ? json.string(best->name()) : json.null();
  return json.end_object().take() + "\n";
}

Status stage_plot(const Args& args, const Sweep& sweep, const std::vector<Point>& points, OutputSet* files) {
  if (!args.has("plot")) return ok_status();
  const std::string& name = sweep.recipe.name.empty() ? args.operands()[0] : sweep.recipe.name;
  const PlotOptions options{name, plural(points.size(), "point") + ", " + sweep.about, sweep.limit_bytes};
  const std::string file = args.text("plot");
  return cli::stage_output(args, file, file.ends_with(".svg") ? plot_svg(points, options) : plot_html(points, options),
                           files);
}

// The code of the first failure that is not final; of the first failure at all if nothing was measured; else 0, or 1 if
// no point fits.
int exit_code_of(const Sweep& sweep, const std::vector<Point>& points) {
  const Error* first = nullptr;
  for (const Point& p : points) {
    if (!p.failure) continue;
    if (!p.is_final()) return static_cast<int>(p.failure->kind);
    if (!first) first = &*p.failure;
  }
  const bool some_measured = std::ranges::any_of(points, &Point::measured);
  if (!some_measured && first) return static_cast<int>(first->kind);
  return best_of(points, sweep.limit_bytes) ? 0 : 1;
}

// --dry-run
Result<int> name_points(const Args& args, const Sweep& sweep, Evaluator* evaluator) {
  std::vector<Point> points = grid_of(sweep.axes);
  Diagnostics problems(10 * kMaxPoints);
  SG_TRY(evaluator->check(&points, &problems));
  SG_TRY(report(args, said_once(problems, points[0].name())));
  for (const Point& p : points) args.report().line("sg-sweep: would score " + p.name());
  if (args.has("json")) SG_TRY(cli::write_text(args, report_json(args, sweep, points)));
  return 0;
}

}  // namespace

Result<int> run_sweep(const Args& args) {
  SG_ASSIGN(Sweep sweep, read_sweep(args));
  SG_ASSIGN(const int64_t cache_size, args.bytes("cache-size"));
  const std::string folder = args.has("no-cache") ? ""
                             : args.has("cache")  ? args.text("cache")
                                                  : recipe::Cache::usual_folder();
  recipe::Cache cache(folder, static_cast<uint64_t>(cache_size));
  SG_ASSIGN(auto known, read_points(sweep.points_file));
  if (args.has("fresh")) known.clear();
  std::optional<PointFile> file;
  if (!args.has("dry-run")) {
    SG_ASSIGN(PointFile opened, PointFile::open(sweep.points_file));
    file.emplace(std::move(opened));
  }
  size_t number = 0;
  sweep.options.told = [&](const Point& p) {
    args.report().line("point " + std::to_string(++number) + "  " + line_of(p));
  };
  sweep.options.planned = [&](const recipe::Plan& plan) {
    recipe::keep_files(sweep.recipe, plan, false);
    std::vector<cli::Target> points;
    if (!args.has("points")) points.push_back({"the file of points", sweep.points_file});
    return cli::check_targets_again(args, points);
  };
  Evaluator evaluator(sweep.recipe, sweep.scoring, sweep.options, &cache, std::move(known), file ? &*file : nullptr);
  if (args.has("dry-run")) return name_points(args, sweep, &evaluator);
  std::vector<Point> points, asked = grid_of(sweep.axes);
  auto left = static_cast<size_t>(args.number("search", 0));
  for (bool is_grid = true; !asked.empty(); is_grid = false) {
    Diagnostics problems(10 * kMaxPoints);
    SG_TRY(evaluator.evaluate(&asked, is_grid, &problems));
    if (is_grid || problems.has_errors()) SG_TRY(report(args, said_once(problems, asked[0].name())));
    points.insert(points.end(), asked.begin(), asked.end());
    mark_front(&points);
    asked = next_points(points, sweep.axes, sweep.limit_bytes, left);
    left -= asked.size();
  }
  OutputSet plot;
  SG_TRY(stage_plot(args, sweep, points, &plot));
  SG_TRY(cli::write_text(args, args.has("json") ? report_json(args, sweep, points) : report_text(args, sweep, points),
                         std::move(plot)));
  return exit_code_of(sweep, points);
}

}  // namespace sg::sweep
