#include "libpasses/bundle.h"

#include <algorithm>

#include <simdjson.h>

#include "libgraph/base/json.h"
#include "libgraph/binary/binary.h"

namespace sg {
namespace {

// [{"pass":"remat","options":{"policy":["full"]},"best_effort":true}]; the last absent = false
constexpr std::string_view kKey = "stepgraph.stages";
constexpr std::string_view kEffortKey = "stepgraph.best_effort";  // true; absent = false

std::string json_of(const std::vector<Stage>& stages) {
  JsonWriter json;
  json.begin_array();
  for (const Stage& stage : stages) {
    json.begin_object().member("pass", stage.pass->name).key("options").begin_object();
    for (const auto& [name, values] : stage.options.values()) {
      json.key(name).begin_array();
      for (const std::string& value : values) json.string(value);
      json.end_array();
    }
    json.end_object();
    if (stage.best_effort) json.member("best_effort", true);
    json.end_object();
  }
  return json.end_array().take();
}

Error damaged(const std::string& what) {
  return {ErrorKind::unreadable, "the stages of the bundle cannot be read: " + what, {}, {}};
}

Result<Stage> stage_of(simdjson::dom::element item, const PassFinder& find) {
  std::string_view name;
  simdjson::dom::object options;
  if (item["pass"].get(name) != simdjson::SUCCESS || item["options"].get(options) != simdjson::SUCCESS)
    return damaged("a stage without a pass or options");
  Stage out{find(name), {}};
  if (out.pass == nullptr) return damaged("there is no pass `" + std::string(name) + "`");
  const simdjson::error_code effort = item["best_effort"].get(out.best_effort);
  if (effort != simdjson::SUCCESS && effort != simdjson::NO_SUCH_FIELD) return damaged("a best_effort that is no flag");
  for (auto field : options) {
    simdjson::dom::array values;
    if (field.value.get(values) != simdjson::SUCCESS) return damaged("an option that is not a list");
    for (auto value : values) {
      std::string_view word;
      if (value.get(word) != simdjson::SUCCESS) return damaged("an option that is not a text");
      out.options.add(std::string(field.key), std::string(word));
    }
  }
  return out;
}

bool is_ours(const Job& job, const KeyValue& kv) {
  return job.pool->strings[kv.key] == kKey || job.pool->strings[kv.key] == kEffortKey;
}

}  // namespace

Result<std::string> write_bundle(const FailedStage& failed) {
  SG_ASSIGN(Job job, read_binary(failed.input, "the input of the failed stage"));
  std::erase_if(job.extra, [&](const KeyValue& kv) { return is_ours(job, kv); });
  job.extra.push_back({job.pool->str(kKey), job.pool->str(json_of(failed.rest))});
  if (failed.best_effort) job.extra.push_back({job.pool->str(kEffortKey), job.pool->str("true")});
  std::ranges::sort(job.extra, {}, [&](const KeyValue& kv) { return job.pool->strings[kv.key]; });
  return write_binary(job);
}

Result<BundledStages> take_stages(Job* job, const PassFinder& find) {
  auto it = std::ranges::find_if(job->extra, [&](const KeyValue& kv) { return job->pool->strings[kv.key] == kKey; });
  if (it == job->extra.end())
    return Error{ErrorKind::unreadable,
                 "the graph is not a bundle: it names no stages",
                 {},
                 "a bundle is what a failed pass leaves; --pass names stages"};
  simdjson::dom::parser parser;
  simdjson::dom::array list;
  const simdjson::padded_string text(job->pool->strings[it->json]);
  if (parser.parse(text).get(list) != simdjson::SUCCESS) return damaged("no list");
  BundledStages out;
  for (auto item : list) {
    SG_ASSIGN(Stage stage, stage_of(item, find));
    out.stages.push_back(std::move(stage));
  }
  out.best_effort = std::ranges::any_of(job->extra, [&](const KeyValue& kv) {
    return job->pool->strings[kv.key] == kEffortKey && job->pool->strings[kv.json] == "true";
  });
  std::erase_if(job->extra, [&](const KeyValue& kv) { return is_ours(*job, kv); });
  return out;
}

}  // namespace sg
