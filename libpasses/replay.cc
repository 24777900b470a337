#include "libpasses/replay.h"

#include <algorithm>

#include <simdjson.h>

#include "libgraph/base/escape.h"
#include "libgraph/base/human.h"
#include "libgraph/base/sha256.h"
#include "libgraph/binary/binary.h"

namespace sg {
namespace {

// Reads true, a string, or a list of strings.
bool read_values(std::string_view json, std::vector<std::string>* out) {
  simdjson::dom::parser parser;
  simdjson::dom::element value;
  const simdjson::padded_string text(json);
  if (parser.parse(text).get(value) != simdjson::SUCCESS) return false;
  bool flag = false;
  std::string_view word;
  simdjson::dom::array list;
  if (value.get(flag) == simdjson::SUCCESS) return flag ? out->push_back(""), true : false;
  if (value.get(word) == simdjson::SUCCESS) return out->emplace_back(word), true;
  if (value.get(list) != simdjson::SUCCESS) return false;
  for (auto item : list) {
    if (item.get(word) != simdjson::SUCCESS) return false;
    out->emplace_back(word);
  }
  return true;
}

Error cannot(std::string message, std::string hint) {
  return {ErrorKind::cannot_apply, std::move(message), {}, std::move(hint)};
}

constexpr const char* kBeginLater = "begin with a graph from after that step";

Result<Stage> stage_of(const HistoryStep& step) {
  Stage out{step.tool.starts_with("sg-") ? find_pass(step.tool.substr(3)) : nullptr, {}};
  if (out.pass == nullptr)
    return cannot("`" + one_line(step.tool) + "` is not a pass of this version: it cannot be repeated", kBeginLater);
  if (!step.is_readable) return cannot("the options of `" + step.tool + "` in the history cannot be read", kBeginLater);
  for (const auto& [name, values] : step.options) {
    if (name == kBestEffort) {  // of every tool, and of no pass
      out.best_effort = true;
      continue;
    }
    if (std::ranges::none_of(out.pass->options, [&, &name = name](const PassOption& o) { return o.name == name; }))
      return cannot(step.tool + " has no option --" + one_line(name) + " in this version", kBeginLater);
    for (const std::string& value : values) out.options.add(name, value);
  }
  return out;
}

bool is_read_in(const std::vector<HistoryStep>& history, const std::string& digest) {
  return std::ranges::any_of(history, [&](const HistoryStep& step) { return step.input_digest == digest; });
}

}  // namespace

std::string HistoryStep::command() const {
  std::string out = shell_word(tool);
  for (const auto& [name, values] : options)
    for (const std::string& value : values)
      out += " " + shell_word("--" + name) + (value.empty() ? "" : " " + shell_word(value));
  return out;
}

Status check_step(const HistoryStep& step) {
  SG_TRY(stage_of(step));
  return ok_status();
}

std::vector<HistoryStep> history_of(const Job& job) {
  std::vector<HistoryStep> out;
  auto text = [&](StrId id) { return id ? job.pool->strings.str(id) : std::string(); };
  for (const Provenance& p : job.provenance) {
    HistoryStep step{text(p.tool), text(p.version), text(p.input_digest), {}, true};
    for (const KeyValue& kv : p.options)
      step.is_readable &= read_values(job.pool->strings[kv.json], &step.options[text(kv.key)]);
    out.push_back(std::move(step));
  }
  return out;
}

Result<Replay> replay(const Job& earlier, const Job& later, size_t threads) {
  SG_ASSIGN(std::string bytes, write_binary(earlier));
  SG_ASSIGN(std::string wanted, write_binary(later));
  const std::vector<HistoryStep> history = history_of(later);
  Replay out;
  out.first = earlier.provenance.size();
  if (bytes == wanted) return out;
  if (is_read_in(history_of(earlier), sha256_tag(wanted)))
    return cannot("that graph was made from this one", "the graph that was made last is named first");
  if (out.first >= history.size() || sha256_tag(bytes) != history[out.first].input_digest)
    return cannot("that graph is not in the history", "sg-log shows the digests; a graph's own is its last line");
  std::vector<Stage> stages;
  for (size_t i = out.first; i < history.size(); ++i) {
    SG_ASSIGN(Stage stage, stage_of(history[i]));
    stages.push_back(std::move(stage));
  }
  out.steps = stages.size();
  PipelineOptions options;
  options.threads = threads, options.version = history[out.first].version;
  size_t done = out.first;
  options.after_stage = [&](const StageReport&, const std::string& result) {
    ++done;
    bool same = done < history.size() ? sha256_tag(result) == history[done].input_digest : result == wanted;
    if (!same && out.other.empty()) out.other = std::to_string(done) + " " + history[done - 1].command();
    return ok_status();
  };
  SG_ASSIGN(Job job, read_binary(bytes, "the earlier graph"));
  Diagnostics notes;
  SG_TRY(run_pipeline(&job, std::move(stages), options, &notes));
  return out;
}

}  // namespace sg
