#include "tools/recipe/checks.h"

#include <filesystem>

#include "libgraph/base/human.h"
#include "libgraph/base/temp_folder.h"
#include "libgraph/binary/binary.h"
#include "libgraph/diff/diff_text.h"
#include "librun/check/expect_report.h"
#include "tools/cli/cli_input.h"
#include "tools/cli/cli_load.h"
#include "tools/cli/cli_siblings.h"
#include "tools/cli/cli_write.h"
#include "tools/recipe/key.h"
#include "tools/recipe/process.h"

namespace sg::recipe {
namespace {

constexpr size_t kShownLines = 30;   // of a tool's messages
constexpr size_t kShownOfDiff = 60;  // lines of a golden's diff

Diagnostic finding(const Location& where, std::string rule, std::string message, std::string hint = {}) {
  return {Severity::error, std::move(rule), std::move(message), where, std::move(hint), {}};
}

Diagnostic finding(const Location& where, std::string rule, const Error& error) {
  std::string at = print_location(error.where);
  return finding(where, std::move(rule), (at.empty() ? "" : at + ": ") + error.message, error.hint);
}

std::string first_lines(const std::string& text, size_t lines) {
  size_t at = 0;
  for (size_t i = 0; i < lines && at != std::string::npos; ++i) at = text.find('\n', at + (i > 0));
  return at == std::string::npos || at + 1 >= text.size() ? text : text.substr(0, at) + "\n...";
}

// The last lines, where a tool says why it failed.
std::string last_lines(const std::string& text) {
  size_t at = text.size();
  for (size_t i = 0; i < kShownLines && at != std::string::npos; ++i)
    at = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  return at == std::string::npos ? text : "..." + text.substr(at);
}

// A tool's messages, shown below the line that reports its failure.
std::string said_by(const Finished& done) {
  std::string text = done.errors + (done.code == 1 ? done.output : "");  // 1 = it ran, and its output says what differs
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "" : indented("\n" + last_lines(text));
}

// Whether a run has judged the graph: that it differs, lacks something, or cannot be run.
bool is_verdict(ErrorKind kind) {
  return kind == ErrorKind::negative || kind == ErrorKind::unreadable || kind == ErrorKind::cannot_apply;
}

using Outcome = Result<std::optional<Diagnostic>>;

// Runs sg-run on these bytes: none = passed, else a finding with its messages.
Outcome run_fails(const RunCheck& check, const std::vector<std::string>& more, std::string_view graph,
                  const std::string& what) {
  std::vector<std::string> words = {cli::folder_of_this() + "sg-run", "-"};
  for (const std::vector<std::string>& part : {command_words(check.options), more})
    words.insert(words.end(), part.begin(), part.end());
  SG_ASSIGN(const Finished done, run_process(words, graph, "-"));
  if (done.code == 0 && done.output.find(kAllNan) != std::string::npos)
    return std::optional(finding(check.where, "run",
                                 "a comparison of nothing but NaN shows nothing" + said_by({1, done.output, {}}),
                                 "sg-run --watch nan names the first node that gives one"));
  if (done.code == 0) return std::optional<Diagnostic>();
  const std::string message = what + " (exit " + std::to_string(done.code) + ")" + said_by(done);
  const ErrorKind kind = error_of(done, "sg-run", check.where).kind;
  if (!is_verdict(kind)) return Error{kind, message, check.where, {}};
  return std::optional(finding(check.where, "run", message));
}

Outcome bitwise_fails(const RunCheck& check, const GraphBytes& graph, const GraphBytes& reference) {
  SG_ASSIGN(const TempFolder folder, TempFolder::make("sg-recipe"));
  std::string values = folder.file("out{r}.safetensors");
  SG_ASSIGN(auto failed, run_fails(check, {"--outputs", values}, reference.bytes, "the reference does not run"));
  if (failed) return failed;
  return run_fails(check, {"--expect", values, "--bitwise"}, graph.bytes, "the results differ from the reference's");
}

// A finding if the job's number of ranks is not the recipe's.
std::optional<Diagnostic> other_world(const RunCheck& check, std::string_view sealed) {
  if (check.ranks == 0) return std::nullopt;
  Result<Job> job = read_binary(sealed, "the result");
  if (!job.ok()) return finding(check.where, "run", job.error());
  if (job->world == check.ranks) return std::nullopt;
  std::string has = "the job has " + plural(job->world, "rank");
  return finding(check.where, "run", has + ", the recipe says " + std::to_string(check.ranks));
}

// The errors in a golden line by line, then the summary.
std::vector<Diagnostic> unreadable_golden(const Step& step, const Error& error, const Diagnostics& said) {
  std::vector<Diagnostic> out;
  for (const Diagnostic& d : said.list())
    if (d.severity == Severity::error) out.push_back(d);
  out.push_back(finding(step.where, "expect", error));
  return out;
}

}  // namespace

Status failing_runs(const Step& step, const GraphBytes& graph, const std::vector<std::optional<GraphBytes>>& references,
                    Cache* cache, std::vector<Diagnostic>* findings) {
  Status out = ok_status();
  for (size_t i = 0; i < step.runs.size(); ++i) {
    const RunCheck& check = step.runs[i];
    if (check.bitwise_to != RunCheck::kNone && !references[i]) {
      findings->push_back(finding(check.where, "run", "the graph to compare with was not made"));
      continue;
    }
    if (std::optional<Diagnostic> other = other_world(check, graph.bytes)) {
      findings->push_back(std::move(*other));
      continue;
    }
    Result<Key> key = key_of_check(check, graph.digest, references[i] ? references[i]->digest : "");
    if (!key.ok()) {
      findings->push_back(finding(check.where, "run", key.error()));
      continue;
    }
    if (cache->has_passed(key->digest)) continue;
    Outcome failed =
        references[i] ? bitwise_fails(check, graph, *references[i]) : run_fails(check, {}, graph.bytes, "sg-run fails");
    if (!failed.ok()) out = out.ok() ? failed.error() : out.error();
    else if (*failed) findings->push_back(std::move(**failed));
    else cache->put_passed(key->digest);
  }
  return out;
}

std::vector<Diagnostic> failing_metrics(const Step& step, std::string_view sealed) {
  if (step.asserts.empty()) return {};
  Result<Job> job = read_binary(sealed, step.name);
  if (!job.ok()) return {finding(step.where, "assert", job.error())};
  Result<std::vector<std::string>> lines = failing_assertions(*job, step.asserts, step.machine);
  if (!lines.ok()) return {finding(step.where, "assert", lines.error())};
  std::vector<Diagnostic> out;
  for (const std::string& line : *lines) {
    auto word = std::find_if(step.asserts.begin(), step.asserts.end(),
                             [&](const Assertion& a) { return line.starts_with(a.word.text + ":"); });
    out.push_back(finding(word == step.asserts.end() ? step.where : word->word.where, "assert", line));
  }
  return out;
}

std::vector<Diagnostic> failing_golden(const Step& step, std::string_view sealed) {
  if (step.expect.empty()) return {};
  std::error_code missing;
  if (!std::filesystem::exists(cli::is_rank_pattern(step.expect) ? cli::file_of_rank(step.expect, 0) : step.expect,
                               missing))
    return {finding(step.where, "expect", "there is no golden " + step.expect, "`sg-recipe expect --bless` writes it")};
  Diagnostics said;
  Result<cli::Loaded> golden = cli::load_job(step.expect, {}, &said);
  if (!golden.ok()) return unreadable_golden(step, golden.error(), said);
  Result<Job> job = read_binary(sealed, step.name);
  if (!job.ok()) return {finding(step.where, "expect", job.error())};
  JobDiff diff = diff_jobs(golden->job, *job, step.ignore);
  if (diff.is_same()) return {};
  DiffTextOptions options;
  options.name_a = step.expect;
  options.name_b = step.name;
  const std::string all = print_diff(diff, options), shown = first_lines(all, kShownOfDiff);
  const bool is_cut = shown.size() < all.size() && shown.ends_with("...");
  return {
      finding(step.where, "expect", "the result differs from " + step.expect + indented("\n" + shown),
              std::string(is_cut ? "`output: FILE` in this stage keeps the result, and `sg-diff` shows all; " : "") +
                  "`sg-recipe expect --bless` accepts the current result")};
}

Status bless_golden(const Step& step, std::string_view sealed) {
  SG_ASSIGN(Job job, read_binary(sealed, step.name));
  job.provenance.clear();  // it changes with every capture, and branches that bless would always conflict there
  return cli::write_job_file(job, step.expect);
}

}  // namespace sg::recipe
