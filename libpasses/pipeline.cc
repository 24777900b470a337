#include "libpasses/pipeline.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "libgraph/base/json.h"
#include "libgraph/base/sha256.h"
#include "libgraph/binary/binary.h"
#include "libgraph/infer/infer.h"
#include "libgraph/verify/verify.h"
#include "libpasses/file_in.h"
#include "libpasses/pass_order.h"

namespace sg {
namespace {

size_t count_nodes(const Job& job) {
  size_t out = 0;
  for (const auto& program : job.programs) out += program->graph.node_count();
  return out;
}

// Drops the folder of a file name: it differs from machine to machine, while the graph must not.
std::string without_folder(const PassInfo& pass, std::string_view option, const std::string& value) {
  const auto row = std::ranges::find(pass.options, option, &PassOption::name);
  const size_t at = row == pass.options.end() ? std::string::npos : file_in(row->argument, value);
  const size_t slash = at == std::string::npos ? at : value.rfind('/');
  return slash == std::string::npos || slash < at ? value : value.substr(0, at) + value.substr(slash + 1);
}

// `left_some`: the result is that of --best-effort, which repeating it takes.
void add_provenance(const Stage& stage, const std::string& version, const std::string& input, bool left_some,
                    Job* job) {
  Pool& pool = *job->pool;
  Provenance entry{pool.str("sg-" + std::string(stage.pass->name)), pool.str(version), {}, pool.str(sha256_tag(input))};
  for (const auto& [name, values] : stage.options.values()) {
    JsonWriter json;
    if (values.size() > 1) json.begin_array();
    for (const std::string& v : values) json.string(without_folder(*stage.pass, name, v));
    if (values.size() > 1) json.end_array();
    const bool is_flag = values.size() == 1 && values[0].empty();
    entry.options.push_back({pool.str(name), pool.str(is_flag ? "true" : json.take())});
  }
  if (left_some) entry.options.push_back({pool.str(kBestEffort), pool.str("true")});
  std::ranges::sort(entry.options, {}, [&](const KeyValue& option) { return pool.strings[option.key]; });
  job->provenance.push_back(std::move(entry));
}

class Pipeline {
 public:
  Pipeline(Job* job, std::vector<Stage> stages, const PipelineOptions& options, Diagnostics* notes,
           std::optional<FailedStage>* failed)
      : job_(job), stages_(std::move(stages)), options_(options), notes_(notes), failed_(failed) {}

  Result<std::vector<StageReport>> run() {
    select_stages();
    SG_TRY(check_all_options());
    SG_ASSIGN(bytes_, write_binary(*job_));
    SG_ASSIGN(*job_, read_binary(bytes_, "the job"));
    for (size_t i = 0; i < stages_.size(); ++i) SG_TRY(run_stage(i, names_[i]));
    return std::move(reports_);
  }

 private:
  // Keeps the stages to run, under the names they have in the full list.
  void select_stages() {
    const std::vector<std::string> names = stage_names(stages_);
    std::vector<Stage> kept;
    for (size_t i = 0; i < stages_.size(); ++i) {
      if (std::ranges::count(options_.disabled, names[i], canonical_stage) == 0)
        kept.push_back(std::move(stages_[i])), names_.push_back(names[i]);
      if (canonical_stage(options_.stop_after) == names[i]) break;
    }
    stages_ = std::move(kept);
  }

  // Checks the options of all later stages before the first one runs, so that a typo costs no work. The first stage's
  // own errors cost none anyway.
  Status check_all_options() {
    for (size_t i = 1; i < stages_.size(); ++i) {
      Status checked = check_options(*stages_[i].pass, stages_[i].options);
      if (checked.ok()) continue;
      Error error = checked.error();
      error.message = "sg-" + names_[i] + ": " + error.message;
      return error;
    }
    return ok_status();
  }

  Status run_stage(size_t i, const std::string& name) {
    const Stage& stage = stages_[i];
    StageReport report{name, stage.pass, {}, 0, false, count_nodes(*job_), 0};
    for (const std::string& line : order_warnings(*job_, std::span(&stage, 1))) notes_->warning("pass-order", line);
    const bool best_effort = options_.best_effort || stage.best_effort;
    PassContext context{notes_, best_effort, options_.explain, options_.threads, {}};
    if (options_.progress) context.progress = [&](const std::string& what) { options_.progress(name, what); };
    const size_t said = notes_->list().size();
    auto begin = std::chrono::steady_clock::now();
    Result<Change> change = stage.pass->run(job_, stage.options, context);
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!change.ok() && best_effort && change.error().kind == ErrorKind::cannot_apply) {
      SG_TRY(leave_out(change.error(), &report));
      return close(std::move(report));
    }
    if (!change.ok()) {
      if (change.error().kind == ErrorKind::internal) keep_failed(i);
      if (stages_.size() > 1) change.error().message = "sg-" + name + ": " + change.error().message;
      return std::move(change.error());
    }
    report.change = std::move(*change);
    report.nodes_after = count_nodes(*job_);
    add_provenance(stage, options_.version, bytes_, best_effort && notes_->list().size() > said, job_);
    SG_TRY(settle(i, name));
    return close(std::move(report));
  }

  Status close(StageReport report) {
    if (options_.after_stage) SG_TRY(options_.after_stage(report, bytes_));
    reports_.push_back(std::move(report));
    return ok_status();
  }

  // Restores the job from before the stage: after an error the stage's job must not be used.
  Status leave_out(const Error& why, StageReport* report) {
    SG_ASSIGN(*job_, read_binary(bytes_, "the job"));
    notes_->warning("left-out", "sg-" + report->name + " is left out: " + why.message, why.where, why.hint);
    report->left_out = true;
    report->change.summary = "left out: it cannot be done here";
    report->nodes_after = report->nodes_before;
    return ok_status();
  }

  // Round-trips the job through bytes, as its readers will see it, and verifies it.
  Status settle(size_t i, const std::string& name) {
    SG_ASSIGN(std::string bytes, write_binary(*job_));
    Result<Job> next = read_binary(bytes, "the result of sg-" + name);
    if (!next.ok()) return broken(i, name, std::move(next.error()));
    Diagnostics findings(5);
    verify(*next, {.threads = options_.threads}, &findings);
    if (findings.has_errors()) return broken(i, name, findings.as_error(ErrorKind::internal));
    *job_ = std::move(*next);
    bytes_ = std::move(bytes);
    return ok_status();
  }

  Error broken(size_t i, const std::string& name, Error error) {
    keep_failed(i);
    error.kind = ErrorKind::internal;
    error.message = "sg-" + name + " left an invalid graph: " + error.message;
    return error;
  }

  void keep_failed(size_t i) {
    if (failed_ == nullptr) return;
    failed_->emplace();
    (*failed_)->input = bytes_;
    (*failed_)->best_effort = options_.best_effort;
    (*failed_)->rest.assign(stages_.begin() + static_cast<std::ptrdiff_t>(i), stages_.end());
  }

  Job* job_;
  std::vector<Stage> stages_;
  std::vector<std::string> names_;  // of stages_
  const PipelineOptions& options_;
  Diagnostics* notes_;
  std::optional<FailedStage>* failed_;
  std::string bytes_;
  std::vector<StageReport> reports_;
};

}  // namespace

std::vector<std::string> stage_names(std::span<const Stage> stages) {
  std::map<std::string_view, int> seen;
  std::vector<std::string> out;
  for (const Stage& stage : stages) {
    const int nth = ++seen[stage.pass->name];
    out.push_back(std::string(stage.pass->name) + (nth == 1 ? "" : ":" + std::to_string(nth)));
  }
  return out;
}

std::string canonical_stage(std::string_view name) {
  if (name.ends_with(":1")) name.remove_suffix(2);
  return std::string(name);
}

Result<std::vector<StageReport>> run_pipeline(Job* job, std::vector<Stage> stages, const PipelineOptions& options,
                                              Diagnostics* notes, std::optional<FailedStage>* failed) {
  return Pipeline(job, std::move(stages), options, notes, failed).run();
}

}  // namespace sg
