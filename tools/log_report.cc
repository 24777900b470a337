#include "tools/log_report.h"

#include "libgraph/base/human.h"
#include "libgraph/base/json.h"
#include "tools/cli/cli_describe.h"

namespace sg::cli {

std::string log_text(const Job& job, const std::vector<HistoryStep>& history, const std::string& digest) {
  const std::string_view title = job.title ? std::string_view(job.pool->strings[job.title]) : "";
  std::string out = (title.empty() ? "a graph without a title" : one_line(title)) + ": " + describe(job) + "\n";
  for (const KeyValue& kv : job.producer)
    out += "captured with " + one_line(job.pool->strings[kv.key]) + " " + one_line(job.pool->strings[kv.json]) + "\n";
  if (history.empty()) out += "no history: the graph says nothing of the tools that made it\n";
  for (size_t i = 0; i < history.size(); ++i) {
    const HistoryStep& step = history[i];
    out += "\n" + std::to_string(i + 1) + "  " + one_line(step.command()) + "\n     version " + one_line(step.version);
    if (!step.input_digest.empty()) out += "\n     read    " + one_line(step.input_digest);
    out += "\n";
  }
  return out + "\n=  this graph\n     is      " + digest + "\n";
}

std::string log_json(const std::string& file, const Job& job, const std::vector<HistoryStep>& history,
                     const std::string& digest) {
  JsonWriter json;
  json.begin_object().member("schema", "sg-log").member("version", 1).member("file", file);
  json.member("digest", digest).key("history").begin_array();
  for (size_t i = 0; i < history.size(); ++i) {
    const HistoryStep& step = history[i];
    json.begin_object().member("step", i + 1).member("tool", step.tool).member("version", step.version);
    json.member("command", step.command()).key("options").begin_object();
    for (const KeyValue& kv : job.provenance[i].options)
      json.key(job.pool->strings[kv.key]).raw(job.pool->strings[kv.json]);
    json.end_object().member("input_digest", step.input_digest).end_object();
  }
  return json.end_array().end_object().take() + "\n";
}

std::string script_of(const std::vector<HistoryStep>& history, const std::string& digest) {
  std::string out = "#!/bin/sh\n# usage: sh replay.sh SOURCE... > again.sg\n# makes " + digest + "\nset -e\n";
  for (size_t i = 0; i < history.size(); ++i)
    out += (i ? " |\n  " : "") + history[i].command() + " -q" + (i ? "" : " \"$@\"");
  return out + "\n";
}

Status check_script(const std::vector<HistoryStep>& history) {
  if (history.empty())
    return Error{ErrorKind::cannot_apply,
                 "the graph has no history: there is nothing to repeat",
                 {},
                 "tools write it when they make a graph"};
  for (const HistoryStep& step : history)
    if (&step != &history.front() || step.tool != "sg-import") SG_TRY(check_step(step));
  return ok_status();
}

std::string replay_text(const Replay& done, size_t steps) {
  if (done.steps == 0) return "no step to do again: the graphs are the same bytes\n";
  const std::string last = std::to_string(steps);
  std::string out = done.steps == 1 ? "step " : "steps " + std::to_string(done.first + 1) + " to ";
  out += last + " done again: ";
  return out + (done.other.empty() ? "the same bytes" : "step " + done.other + " made another graph than it did then") +
         "\n";
}

std::string replay_json(const Replay& done) {
  JsonWriter json;
  json.begin_object().member("schema", "sg-log-replay").member("version", 1).member("first", done.first + 1);
  json.member("steps", done.steps).member("same", done.other.empty()).member("other", done.other).end_object();
  return json.take() + "\n";
}

}  // namespace sg::cli
