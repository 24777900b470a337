#include "libpasses/pipeline.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "libgraph/binary.h"
#include "libgraph/infer.h"
#include "libgraph/json.h"
#include "libgraph/sha256.h"
#include "libgraph/verify.h"

namespace sg {
namespace {

size_t count_nodes(const Job& job) {
  size_t out = 0;
  for (const auto& program : job.programs) out += program->graph.node_count();
  return out;
}

void add_provenance(const Stage& stage, const std::string& version, const std::string& input, Job* job) {
  Pool& pool = *job->pool;
  Provenance entry{pool.str("sg-" + std::string(stage.pass->name)), pool.str(version), {}, pool.str(sha256_tag(input))};
  for (const auto& [name, values] : stage.options.values()) {
    JsonWriter json;
    if (values.size() > 1) json.begin_array();
    for (const std::string& v : values) json.string(v);
    if (values.size() > 1) json.end_array();
    const bool is_flag = values.size() == 1 && values[0].empty();
    entry.options.push_back({pool.str(name), pool.str(is_flag ? "true" : json.take())});
  }
  job->provenance.push_back(std::move(entry));
}

class Pipeline {
 public:
  Pipeline(Job* job, std::vector<Stage> stages, const PipelineOptions& options, Diagnostics* notes, std::optional<FailedStage>* failed)
      : job_(job), stages_(std::move(stages)), options_(options), notes_(notes), failed_(failed) {}

  Result<std::vector<StageReport>> run() {
    for (const std::string& line : order_warnings(*job_, stages_)) notes_->warning("pass-order", line);
    SG_ASSIGN(bytes_, write_binary(*job_));
    SG_ASSIGN(*job_, read_binary(bytes_, "the job"));
    std::map<std::string_view, int> seen;
    for (size_t i = 0; i < stages_.size(); ++i) {
      const std::string pass(stages_[i].pass->name);
      const int nth = ++seen[stages_[i].pass->name];
      const std::string name = nth == 1 ? pass : pass + ":" + std::to_string(nth);
      const bool is_disabled = std::ranges::count(options_.disabled, name) != 0 || (nth == 1 && std::ranges::count(options_.disabled, pass + ":1") != 0);
      if (!is_disabled) SG_TRY(run_stage(i, name));
      if (options_.stop_after == name) break;
    }
    return std::move(reports_);
  }

 private:
  Status run_stage(size_t i, const std::string& name) {
    const Stage& stage = stages_[i];
    StageReport report{name, stage.pass, {}, 0, count_nodes(*job_), 0};
    PassContext context{notes_, options_.best_effort, options_.explain, options_.threads};
    auto begin = std::chrono::steady_clock::now();
    Result<Change> change = stage.pass->run(job_, stage.options, context);
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!change.ok()) {
      if (change.error().kind == ErrorKind::internal) keep_failed(i);
      return std::move(change.error());
    }
    report.change = std::move(*change);
    report.nodes_after = count_nodes(*job_);
    add_provenance(stage, options_.version, bytes_, job_);
    SG_TRY(settle(i, name));
    if (options_.after_stage) SG_TRY(options_.after_stage(report, bytes_));
    reports_.push_back(std::move(report));
    return ok_status();
  }

  // The job as its readers will have it, held against the rules.
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
    (*failed_)->rest.assign(stages_.begin() + static_cast<std::ptrdiff_t>(i), stages_.end());
  }

  Job* job_;
  std::vector<Stage> stages_;
  const PipelineOptions& options_;
  Diagnostics* notes_;
  std::optional<FailedStage>* failed_;
  std::string bytes_;
  std::vector<StageReport> reports_;
};

}  // namespace

std::vector<std::string> order_warnings(const Job& job, std::span<const Stage> stages) {
  std::vector<std::string> history, out;
  for (const Provenance& entry : job.provenance) {
    std::string_view tool = job.pool->strings[entry.tool];
    if (tool.starts_with("sg-")) history.emplace_back(tool.substr(3));
  }
  for (const Stage& stage : stages) {
    for (std::string_view later : stage.pass->precedes)
      if (std::ranges::count(history, later) != 0)
        out.push_back("sg-" + std::string(stage.pass->name) + " is meant to run before sg-" + std::string(later) + ", which has run");
    history.emplace_back(stage.pass->name);
  }
  return out;
}

Result<std::vector<StageReport>> run_pipeline(Job* job, std::vector<Stage> stages, const PipelineOptions& options,
                                              Diagnostics* notes, std::optional<FailedStage>* failed) {
  return Pipeline(job, std::move(stages), options, notes, failed).run();
}

}  // namespace sg
