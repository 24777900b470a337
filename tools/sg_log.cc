// sg-log: how a graph was made, and whether the same steps make it again.
#include "libgraph/binary/binary.h"
#include "libgraph/human.h"
#include "libgraph/json.h"
#include "libgraph/sha256.h"
#include "libpasses/replay.h"
#include "tools/cli_job.h"

using namespace sg;
using namespace sg::cli;

namespace {

constexpr Option kOptions[] = {
    {"replay", 'r', {}, "repeat the steps since EARLIER and compare; without EARLIER print a script"},
};

std::string as_text(const Job& job, const std::vector<HistoryStep>& history, const std::string& digest) {
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

std::string as_json(const Args& args, const Job& job, const std::vector<HistoryStep>& history,
                    const std::string& digest) {
  JsonWriter json;
  json.begin_object().member("schema", "sg-log").member("version", 1).member("file", args.input());
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

// Names in a file are not run unless they are known tools: passes, and the import that a history begins with.
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

// `"$@"`: the sources of the first step, which the graph does not record.
std::string as_script(const std::vector<HistoryStep>& history, const std::string& digest) {
  std::string out = "#!/bin/sh\n# usage: sh replay.sh SOURCE... > again.sg\n# makes " + digest + "\nset -e\n";
  for (size_t i = 0; i < history.size(); ++i)
    out += (i ? " |\n  " : "") + history[i].command() + " -q" + (i ? "" : " \"$@\"");
  return out + "\n";
}

Result<int> run_again(const Args& args, const Job& job, const std::vector<HistoryStep>& history) {
  SG_ASSIGN(Job earlier, read_job(args, args.operands()[1]));
  SG_ASSIGN(Replay done, replay(earlier, job, args.threads()));
  std::string steps =
      "steps " + std::to_string(done.first + 1) + " to " + std::to_string(history.size()) + " done again: ";
  if (done.steps == 1) steps = "step " + std::to_string(history.size()) + " done again: ";
  const bool same = done.other.empty();
  if (args.has("json")) {
    JsonWriter json;
    json.begin_object().member("schema", "sg-log-replay").member("version", 1).member("first", done.first + 1);
    json.member("steps", done.steps).member("same", same).member("other", done.other).end_object();
    SG_TRY(write_text(args, json.take() + "\n"));
  } else {
    SG_TRY(write_text(
        args,
        steps + (same ? "the same bytes" : "step " + done.other + " made another graph than it did then") + "\n"));
  }
  return leave(args, same ? 0 : 1);
}

Result<int> run(const Args& args) {
  const bool again = args.operands().size() == 2;
  if (again && !args.has("replay"))
    return Error{ErrorKind::usage, "sg-log takes one graph", {}, "with --replay, a second graph says where to start"};
  if (args.has("replay") && !again) SG_TRY(refuse_json(args, "--replay without EARLIER prints a script"));
  SG_ASSIGN(Job job, read_job(args, args.input()));
  std::vector<HistoryStep> history = history_of(job);
  if (again) return run_again(args, job, history);
  if (args.has("replay")) SG_TRY(check_script(history));
  SG_ASSIGN(std::string bytes, write_binary(job));
  const std::string digest = sha256_tag(bytes);
  if (args.has("replay")) SG_TRY(write_text(args, as_script(history, digest)));
  else SG_TRY(write_text(args, args.has("json") ? as_json(args, job, history, digest) : as_text(job, history, digest)));
  return leave(args, 0);
}

constexpr Tool kTool = {
    .name = "sg-log",
    .summary = "show how a graph was made: tools, options, digests",
    .operands = "[GRAPH] [EARLIER]",
    .details =
        "GRAPH is a .sg file, a text, a rank pattern such as 'rank{r}.sg', or - for standard input.\n"
        "EARLIER is a graph from its history. After --replay: exit 0 for the same bytes, 1 for a different graph.",
    .max_operands = 2,
    .options = kOptions,
    .examples = {{"sg-log step.sg", "the tools and options that made it"},
                 {"sg-clean -q step.sg -o clean.sg && sg-log clean.sg step.sg --replay",
                  "repeat the step; are the bytes the same?"}},
    .run = run,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
