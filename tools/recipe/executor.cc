#include "tools/recipe/executor.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <system_error>
#include <thread>

#include "libgraph/base/sha256.h"
#include "libgraph/base/temp_folder.h"
#include "libgraph/binary/binary.h"
#include "libpasses/pipeline.h"
#include "tools/cli/cli_input.h"
#include "tools/cli/cli_siblings.h"
#include "tools/cli/cli_write.h"
#include "tools/recipe/checks.h"
#include "tools/recipe/files.h"
#include "tools/recipe/process.h"

namespace sg::recipe {
namespace {

bool is_done(StepState s) { return s != StepState::waiting; }
bool has_graph(StepState s) { return s == StepState::made || s == StepState::cached; }

// The steps whose graphs a step reads.
std::vector<uint32_t> read_by(const Step& step) {
  std::vector<uint32_t> out;
  if (step.from != Step::kNone) out.push_back(step.from);
  for (const RunCheck& r : step.runs)
    if (r.bitwise_to != RunCheck::kNone) out.push_back(r.bitwise_to);
  return out;
}

Status write_result(const Step& step, const std::string& bytes) {
  SG_ASSIGN(Job job, read_binary(bytes, step.name));
  return cli::write_job_file(job, step.output);
}

}  // namespace

std::string last_name(const Step& step) {
  std::error_code gone;  // the working folder may be: then the name is as it was given
  const std::filesystem::path file = std::filesystem::absolute(step.where.file, gone);
  return (gone ? step.where.file : file.string()) + " " + step.name;
}

// State shared by the threads: which steps are taken, and their results.
struct Executor::Shared {
  std::mutex mutex;
  std::condition_variable moved;
  std::vector<StepResult> results;
  std::vector<bool> taken, wanted;
  std::vector<size_t> readers;  // by step: readers that are not done
  std::set<std::string> keys_under_way;
  std::map<std::string, std::weak_ptr<const std::string>> made;  // by key, while in use
};

Executor::Executor(const Plan& plan, Cache* cache, ExecuteOptions options,
                   std::function<void(size_t, const StepResult&)> told)
    : plan_(plan), cache_(*cache), options_(options), told_(std::move(told)) {}

std::vector<StepResult> Executor::run(const std::vector<uint32_t>& wanted) {
  Shared shared;
  shared.results.resize(plan_.steps.size());
  shared.taken.resize(plan_.steps.size());
  shared.wanted.assign(plan_.steps.size(), wanted.empty());
  for (uint32_t w : wanted) shared.wanted[w] = true;
  shared.readers.resize(plan_.steps.size());
  for (size_t i = plan_.steps.size(); i-- > 0;) {  // steps precede their readers
    if (!shared.wanted[i]) continue;
    for (uint32_t read : read_by(plan_.steps[i])) {
      shared.wanted[read] = true;
      ++shared.readers[read];
    }
  }
  std::vector<std::jthread> threads;
  try {
    while (threads.size() + 1 < options_.threads) threads.emplace_back([&] { work(&shared); });
  } catch (const std::system_error&) {
    // there are no more: those that run, and this one, do the work
  }
  work(&shared);
  threads.clear();
  cache_.trim();
  return std::move(shared.results);
}

// Takes ready steps until none is left.
void Executor::work(Shared* shared) {
  auto ready = [&](size_t i) {
    return std::ranges::all_of(read_by(plan_.steps[i]),
                               [&](uint32_t read) { return is_done(shared->results[read].state); });
  };
  std::unique_lock lock(shared->mutex);
  while (true) {
    size_t next = plan_.steps.size();
    bool all_taken = true;
    for (size_t i = 0; i < plan_.steps.size() && next == plan_.steps.size(); ++i) {
      if (shared->taken[i] || !shared->wanted[i]) continue;
      all_taken = false;
      if (ready(i)) next = i;
    }
    if (all_taken) return;
    if (next == plan_.steps.size()) {
      shared->moved.wait(lock);
      continue;
    }
    shared->taken[next] = true;
    lock.unlock();
    perform(next, shared);
    lock.lock();
    shared->moved.notify_all();
  }
}

// The results that a step reads, kept alive for it.
struct Executor::Needs {
  StepResult input;
  std::vector<StepResult> references;  // by run; without bytes = not requested, or not made
};

Executor::Needs Executor::needs_of(const Step& step, Shared* shared) {
  std::lock_guard lock(shared->mutex);
  Needs out;
  if (step.from != Step::kNone) out.input = shared->results[step.from];
  for (const RunCheck& r : step.runs)
    out.references.push_back(r.bitwise_to == RunCheck::kNone ? StepResult() : shared->results[r.bitwise_to]);
  return out;
}

void Executor::perform(size_t index, Shared* shared) {
  const Step& step = plan_.steps[index];
  auto begin = std::chrono::steady_clock::now();
  StepResult out = outcome(index, shared);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::lock_guard lock(shared->mutex);
  told_(index, out);
  shared->results[index] = std::move(out);
  if (options_.keep_graphs) return;
  if (shared->readers[index] == 0) shared->results[index].bytes.reset();
  for (uint32_t read : read_by(step))
    if (--shared->readers[read] == 0) shared->results[read].bytes.reset();
}

StepResult Executor::outcome(size_t index, Shared* shared) {
  const Step& step = plan_.steps[index];
  StepResult out;
  try {
    Needs needs = needs_of(step, shared);
    if (step.from != Step::kNone && !has_graph(needs.input.state)) {
      out.state = StepState::skipped;
      return out;
    }
    Status made = make_once(step, needs.input, shared, &out);
    if (made.ok()) made = settle(step, needs, &out);
    if (!made.ok()) out.error = made.error();
    if (out.error && out.error->where.file.empty()) {  // a pass knows the graph, but not the recipe
      std::string path = std::move(out.error->where.path);
      out.error->where = step.where;
      out.error->where.path = std::move(path);
    }
    if (options_.examine && has_graph(out.state)) options_.examine(index, out);
  } catch (const std::bad_alloc&) {  // nothing else would catch what a worker thread throws
    out.error = Error{ErrorKind::missing, "out of memory", step.where, {}};
  } catch (const std::exception& problem) {
    out.error = Error{ErrorKind::internal, problem.what(), step.where, {}};
  }
  if (out.error && !has_graph(out.state)) out.state = StepState::failed;
  return out;
}

// A key that others wait for, until its graph is made or has failed, by whatever way.
class Executor::UnderWay {
 public:
  UnderWay(Shared* shared, const std::string& key) : shared_(*shared), key_(key) {
    std::unique_lock lock(shared_.mutex);
    shared_.moved.wait(lock, [&] { return !shared_.keys_under_way.contains(key_); });
    shared_.keys_under_way.insert(key_);
  }
  ~UnderWay() {
    std::lock_guard lock(shared_.mutex);
    shared_.keys_under_way.erase(key_);
    shared_.moved.notify_all();
  }
  UnderWay(const UnderWay&) = delete;

 private:
  Shared& shared_;
  const std::string& key_;
};

// Of several steps with equal keys, the first makes the graph and the others find it.
Status Executor::make_once(const Step& step, const StepResult& input, Shared* shared, StepResult* out) {
  SG_ASSIGN(out->key, key_of(step, input.digest));
  {
    const std::string& key = out->key.digest;
    const UnderWay mine(shared, key);
    {
      std::lock_guard lock(shared->mutex);
      if (auto at = shared->made.find(key); at != shared->made.end()) out->bytes = at->second.lock();
    }
    SG_TRY(make(step, input, out));
    std::lock_guard lock(shared->mutex);
    shared->made[key] = out->bytes;
  }
  out->digest = hex(sha256(*out->bytes));
  cache_.put_last(last_name(step), out->key.text());
  return ok_status();
}

// Runs the checks, and writes the files that the recipe names.
Status Executor::settle(const Step& step, const Needs& needs, StepResult* out) {
  Status ran = ok_status();
  if (options_.checks) {
    std::vector<std::optional<GraphBytes>> references;
    for (size_t i = 0; i < step.runs.size(); ++i) {
      const StepResult& r = needs.references[i];
      references.push_back(r.bytes ? std::optional(GraphBytes{*r.bytes, r.digest}) : std::nullopt);
    }
    auto add = [&](std::vector<Diagnostic> list) {
      out->failed_checks.insert(out->failed_checks.end(), list.begin(), list.end());
    };
    add(failing_metrics(step, *out->bytes));
    ran = failing_runs(step, {*out->bytes, out->digest}, references, &cache_, &out->failed_checks);
    std::vector<Diagnostic> golden = failing_golden(step, *out->bytes);
    if (!golden.empty() && options_.bless && out->failed_checks.empty() && ran.ok()) {
      SG_TRY(bless_golden(step, *out->bytes));
      out->blessed = true;
    } else {
      if (options_.bless)
        for (Diagnostic& d : golden) d.hint = "it was not blessed, because another check failed";
      add(std::move(golden));
    }
  }
  if (options_.outputs && !step.output.empty()) SG_TRY(write_result(step, *out->bytes));
  return ran;
}

Status Executor::make(const Step& step, const StepResult& input, StepResult* out) {
  if (out->bytes) {
    out->state = StepState::cached;
    return ok_status();
  }
  if (std::optional<std::string> known = cache_.graph(out->key.digest)) {
    out->bytes = std::make_shared<const std::string>(std::move(*known));
    out->state = StepState::cached;
  } else {
    SG_ASSIGN(std::string bytes, step.kind != StepKind::pass ? read_input(step, out)
                                 : options_.pipes            ? pass_by_tool(step, input, out)
                                                             : pass_here(step, input, out));
    cache_.put_graph(out->key.digest, bytes);
    out->bytes = std::make_shared<const std::string>(std::move(bytes));
    out->state = StepState::made;
  }
  return ok_status();
}

// Existing graphs are read by sg-parse, which handles texts, rank patterns and verification.
Result<std::string> Executor::read_input(const Step& step, StepResult* out) {
  std::string tool = step.kind == StepKind::import ? "sg-import" : "sg-parse";
  std::vector<std::string> words = {cli::folder_of_this() + tool};
  for (std::string& w : command_words(step.options)) words.push_back(std::move(w));
  SG_ASSIGN(TempFolder folder, TempFolder::make("sg-recipe"));
  std::string file = folder.file("graph.sg");
  words.insert(words.end(), {"-o", file, "--"});  // a source may be called -x or @x
  words.insert(words.end(), step.sources.begin(), step.sources.end());
  SG_ASSIGN(Finished done, run_process(words, {}, "-"));
  if (done.code != 0) return error_of(done, tool, step.where);
  SG_ASSIGN(std::vector<std::string> written, cli::entries_of(folder.path()));
  if (written.size() > 1)
    return Error{ErrorKind::cannot_apply, "the import of " + step.source + " has weights beside the graph", step.where,
                 "import it once with sg-import, and name the graph as the input"};
  if (size_t warned = done.errors.find("warning: "); warned != std::string::npos) out->said = done.errors;
  return read_regular_file(file);
}

Result<std::string> Executor::pass_here(const Step& step, const StepResult& input, StepResult* out) {
  SG_ASSIGN(Job job, read_binary(*input.bytes, step.name));
  PipelineOptions options;
  Stage stage{step.pass, pass_options(step.options)};
  options.best_effort = has_option(step.options, "best-effort");
  options.version = cli::kVersion;
  std::string bytes;
  options.after_stage = [&](const StageReport&, const std::string& sealed) {
    bytes = sealed;
    return ok_status();
  };
  Diagnostics notes;
  auto reports = run_pipeline(&job, {std::move(stage)}, options, &notes);
  out->notes = notes.list();
  if (!reports.ok()) {
    if (reports.error().kind == ErrorKind::internal)
      reports.error().hint = "with --pipes the tool itself keeps what shows the bug";
    return reports.error();
  }
  const StageReport& report = (*reports)[0];
  out->summary = report.change.summary + " (" + std::to_string(report.nodes_before) + " -> " +
                 std::to_string(report.nodes_after) + " nodes)";
  return bytes;
}

Result<std::string> Executor::pass_by_tool(const Step& step, const StepResult& input, StepResult* out) {
  std::vector<std::string> words = {cli::folder_of_this() + step.tool, "-"};
  for (std::string& w : command_words(step.options)) words.push_back(std::move(w));
  SG_ASSIGN(Finished done, run_process(words, *input.bytes, "-"));
  if (done.code != 0) return error_of(done, step.tool, step.where);
  out->said = std::move(done.errors);
  return std::move(done.output);
}

}  // namespace sg::recipe
