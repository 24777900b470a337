#include "tools/recipe/commands.h"

#include <map>
#include <optional>
#include <sstream>

#include "libgraph/base/human.h"
#include "libgraph/base/json.h"
#include "libgraph/base/nearest.h"
#include "libgraph/base/sha256.h"
#include "tools/cli/cli_targets.h"
#include "tools/cli/cli_write.h"
#include "tools/recipe/bisect.h"
#include "tools/recipe/command_options.h"
#include "tools/recipe/files.h"
#include "tools/recipe/schema.h"
#include "tools/recipe/session.h"

namespace sg::recipe {
namespace {

using cli::Args;

Result<int> check(const Args& args, Session* session) {
  std::string variants = session->plan.variants > 1 ? ", " + plural(session->plan.variants, "variant") : "";
  size_t stages = 0;
  for (const Step& s : session->plan.steps) stages += s.kind == StepKind::pass;
  if (args.has("json")) {
    JsonWriter json;
    json.begin_object().member("schema", "sg-recipe-check").member("version", 1).member("file", session->file);
    json.member("stages", stages).member("variants", session->plan.variants).end_object();
    SG_TRY(cli::write_text(args, json.take() + "\n"));
    return 0;
  }
  const std::string verdict = session->file + ": valid, " + plural(stages, "stage") + variants + "\n";
  SG_TRY(cli::write_text(args, args.has("quiet") ? "" : verdict));
  return 0;
}

// What is known without running anything: a step's key needs the digest of its input.
struct Forecast {
  bool known = false, cached = false;
  std::string digest;  // of the result, if cached
  std::string why;
};

std::vector<Forecast> forecast(Session* session) {
  std::vector<Forecast> out;
  for (const Step& s : session->plan.steps) {
    Forecast f;
    if (s.from != Step::kNone && !out[s.from].cached) {
      f.why = session->plan.steps[s.from].name + " is remade";
    } else if (Result<Key> key = key_of(s, s.from == Step::kNone ? "" : out[s.from].digest); key.ok()) {
      f.known = true;
      if (std::optional<std::string> bytes = session->cache.graph(key->digest)) {
        f.cached = true;
        f.digest = hex(sha256(*bytes));
        f.why = key->digest.substr(0, 12);
      } else {
        std::optional<std::string> last = session->cache.last(last_name(s));
        std::string changed = last ? what_changed(parts_of(*last), *key) : "";
        f.why = !last ? "never run" : changed.empty() ? "no longer in the cache" : changed;
      }
    } else {
      f.why = key.error().message;
    }
    out.push_back(std::move(f));
  }
  return out;
}

std::string command_of(const Step& s) {
  std::string out = s.kind == StepKind::pass ? s.tool : s.tool + " " + s.source;
  for (const std::string& w : command_words(s.options)) out += " " + w;
  return out;
}

std::string plan_text(const Plan& plan, const std::vector<Forecast>& forecasts) {
  std::string out;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& s = plan.steps[i];
    out += (forecasts[i].cached ? "cached  " : "run     ") + left_cell(s.name, 24) + command_of(s) + "  (" +
           forecasts[i].why + ")\n";
  }
  return out;
}

std::string plan_json(const Plan& plan, const std::vector<Forecast>& forecasts) {
  JsonWriter json;
  json.begin_object().member("schema", "sg-recipe-plan").member("version", 1).key("steps").begin_array();
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& s = plan.steps[i];
    json.begin_object().member("name", s.name).member("command", command_of(s)).member("cached", forecasts[i].cached);
    json.member("why", forecasts[i].why);
    if (s.from != Step::kNone) json.member("from", plan.steps[s.from].name);
    json.end_object();
  }
  return json.end_array().end_object().take();
}

Result<int> plan(const Args& args, Session* session) {
  std::vector<Forecast> forecasts = forecast(session);
  SG_TRY(cli::write_text(
      args, args.has("json") ? plan_json(session->plan, forecasts) + "\n" : plan_text(session->plan, forecasts)));
  return 0;
}

// `same`: whether the results equal those of the lock, if that was checked.
std::string results_json(const Plan& plan, const std::vector<StepResult>& results, std::optional<bool> same = {}) {
  JsonWriter json;
  json.begin_object().member("schema", "sg-recipe-run").member("version", 1);
  if (same) json.member("same", *same);
  json.key("steps").begin_array();
  for (size_t i = 0; i < results.size(); ++i) {
    const StepResult& r = results[i];
    json.begin_object()
        .member("name", plan.steps[i].name)
        .member("state", state_name(r.state))
        .member("seconds", r.seconds);
    json.member("digest", r.digest.empty() ? "" : "sha256:" + r.digest).member("summary", r.summary);
    json.member("error", r.error ? r.error->message : "").key("failed_checks").begin_array();
    for (const Diagnostic& d : r.failed_checks) json.string(d.message);
    json.end_array().end_object();
  }
  return json.end_array().end_object().take();
}

// Writes --json to standard output or -o FILE. REQUIRES: the command writes nothing else there
Status write_results(const Args& args, const Session& session, const std::vector<StepResult>& results,
                     std::optional<bool> same = {}) {
  return args.has("json") ? cli::write_text(args, results_json(session.plan, results, same) + "\n") : ok_status();
}

Result<int> run(const Args& args, Session* session) {
  std::vector<StepResult> results = execute(args, session, {});
  SG_TRY(write_results(args, *session, results));
  return exit_code_of(results);
}

Result<int> expect(const Args& args, Session* session) {
  ExecuteOptions options;
  options.outputs = false;
  options.bless = args.has("bless");
  std::vector<StepResult> results = execute(args, session, options);
  SG_TRY(write_results(args, *session, results));
  return exit_code_of(results);
}

Result<std::string> lock_file(const Session& session) {
  if (session.file == kStdin)
    return Error{ErrorKind::usage, "a recipe from standard input has no lock beside it", {}, "name its file"};
  return session.file + ".lock";
}

constexpr std::string_view kLockHead = "# sg-recipe lock 1";

// One line per result, followed by comments with what it was made of.
std::string lock_text(const Plan& plan, const std::vector<StepResult>& results) {
  std::string out = std::string(kLockHead) + ": the digest of each result, and what it was made of\n";
  for (size_t i = 0; i < results.size(); ++i) {
    out += "sha256:" + results[i].digest + "  " + plan.steps[i].name + "\n";
    std::istringstream parts(results[i].key.text());
    for (std::string line; std::getline(parts, line);) out += "#   " + line + "\n";
  }
  return out;
}

Result<int> lock(const Args& args, Session* session) {
  ExecuteOptions options;
  options.outputs = false;
  std::string file;
  if (!args.has("output")) {
    SG_ASSIGN(file, lock_file(*session));
  }
  std::vector<StepResult> results = execute(args, session, options);
  if (int code = exit_code_of(results); code != 0) {
    args.report().note("no lock is written: a lock is of results whose checks pass");
    return code;
  }
  const std::string text = lock_text(session->plan, results);
  SG_TRY(file.empty() ? cli::write_text(args, text) : cli::write_whole(file, text));
  return 0;
}

struct Locked {
  std::string digest, parts;  // in the form of Key::text; empty in locks of older versions
};

// "sha256:0123...  name"
bool is_result(const std::string& line) {
  constexpr std::string_view kTag = "sha256:", kGap = "  ";
  constexpr size_t kDigits = 64;
  const size_t end = kTag.size() + kDigits;
  if (line.size() <= end + kGap.size() || !line.starts_with(kTag) || line.compare(end, kGap.size(), kGap) != 0)
    return false;
  return line.find_first_not_of("0123456789abcdef", kTag.size()) == end;
}

Result<std::map<std::string, Locked>> read_lock(const std::string& file) {
  Result<std::string> text = read_regular_file(file);
  if (!text.ok())
    return Error{ErrorKind::unreadable, "there is no lock", {file, 0, 0, {}, {}}, "`sg-recipe lock` writes it"};
  uint32_t number = 0;
  auto damaged = [&](const std::string& what) {
    return Error{ErrorKind::unreadable, what, {file, number, 1, {}, {}}, "`sg-recipe lock` writes it anew"};
  };
  std::istringstream in(*text);
  std::map<std::string, Locked> out;
  Locked* last = nullptr;
  for (std::string line; std::getline(in, line);) {
    if (++number == 1 && !line.starts_with(kLockHead))
      return damaged("not a lock: it does not begin with `" + std::string(kLockHead) + "`");
    if (line.starts_with("#   ") && last) last->parts += line.substr(4) + "\n";
    if (line.empty() || line[0] == '#') continue;
    if (!is_result(line)) return damaged("the lock is damaged: not a digest and a name");
    const size_t gap = line.find("  ");
    const auto [at, is_new] = out.try_emplace(line.substr(gap + 2), Locked{line.substr(0, gap), {}});
    if (!is_new) return damaged("the lock is damaged: `" + at->first + "` is there twice");
    last = &at->second;
  }
  if (!text->ends_with('\n'))
    return damaged(text->empty() ? "the lock is empty" : "the lock is damaged: its last line is cut");
  return out;
}

// Why a result differs from the lock's.
std::string why_other(const Locked& locked, const StepResult& now) {
  if (locked.parts.empty()) return "";
  const std::string changed = what_changed(parts_of(locked.parts), now.key);
  return ": " + (changed.empty() ? "made of the same, by the same tools" : changed);
}

// Reports where a difference begins; results that follow from it are listed in one line.
Result<int> verify(const Args& args, Session* session) {
  SG_ASSIGN(const std::string file, lock_file(*session));
  SG_ASSIGN(auto locked, read_lock(file));
  cli::keep_read(file, "is the lock");
  SG_TRY(cli::check_targets_again(args));
  ExecuteOptions options;
  options.outputs = options.checks = false;
  std::vector<StepResult> results = execute(args, session, options);
  if (int code = exit_code_of(results); code != 0) return code;
  const std::vector<Step>& steps = session->plan.steps;
  bool same = true;
  auto differs = [&](const std::string& what) {
    same = false;
    const std::string hint = "`sg-recipe lock` updates it to the current results";
    args.report().add(Diagnostic{Severity::error, "lock", what, {file, 0, 0, {}, {}}, hint, {}});
  };
  std::vector<bool> is_other(steps.size());
  std::string followers;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto at = locked.find(steps[i].name);
    const std::string now = "sha256:" + results[i].digest;
    if (at == locked.end()) {
      differs("`" + steps[i].name + "` is not in the lock");
      continue;
    }
    is_other[i] = at->second.digest != now;
    const bool follows = steps[i].from != Step::kNone && is_other[steps[i].from];
    if (is_other[i] && follows) followers += (followers.empty() ? "`" : ", `") + steps[i].name + "`";
    else if (is_other[i])
      differs("`" + steps[i].name + "` is " + now + ", the lock says " + at->second.digest +
              why_other(at->second, results[i]));
    locked.erase(at);
  }
  if (!followers.empty()) differs("what is made of that differs too: " + followers);
  for (const auto& [name, gone] : locked) differs("the recipe has no `" + name + "` any more");
  SG_TRY(write_results(args, *session, results, same));
  return same ? 0 : 1;
}

Result<int> schema(const Args& args) {
  ToolTable tools;
  SG_ASSIGN(std::string text, recipe_schema(&tools));
  SG_TRY(cli::write_text(args, text));
  return 0;
}

}  // namespace

Result<int> run_command(const Args& args) {
  using Command = Result<int> (*)(const Args&, Session*);
  static const std::map<std::string_view, Command> commands = {{"bisect", bisect}, {"check", check}, {"expect", expect},
                                                               {"lock", lock},     {"plan", plan},   {"run", run},
                                                               {"verify", verify}};
  std::string word = args.operands().empty() ? "" : args.operands()[0];
  auto command = commands.find(word);
  if (command == commands.end() && word != "schema") {
    std::string hint = nearest_hint(word, args.tool().commands);
    return Error{ErrorKind::usage,
                 word.empty() ? "which command?" : "there is no command `" + word + "`",
                 {},
                 hint.empty() ? "one of check, plan, run, expect, lock, verify, bisect, schema" : hint};
  }
  SG_TRY(check_options_of(args, word));
  if (word == "schema") return schema(args);
  Result<Session> session = open_session(args);
  if (!session.ok()) {  // `check` answers whether the recipe is valid
    if (word == "check" && session.error().kind == ErrorKind::unreadable) session.error().kind = ErrorKind::negative;
    return session.error();
  }
  const bool makes_something = word != "check" && word != "plan";
  return makes_something && args.has("dry-run") ? plan(args, &*session) : command->second(args, &*session);
}

}  // namespace sg::recipe
