#include "tools/cli/cli_describe.h"

#include "libgraph/base/human.h"
#include "libgraph/base/joined.h"
#include "libgraph/base/json.h"
#include "libgraph/edit/merge.h"
#include "libgraph/story/ranks_text.h"

namespace sg::cli {
namespace {

std::string spelled(const std::vector<uint32_t>& ranks) { return ranks.empty() ? "*" : joined(ranks, " "); }

}  // namespace

std::string describe(const Job& job) {
  size_t inputs = job.programs.empty() ? 0 : job.programs[0]->graph.inputs().size();
  size_t outputs = job.programs.empty() ? 0 : job.programs[0]->graph.outputs().size();
  std::string out =
      plural(job.node_count(), "node") + ", " + plural(inputs, "input") + ", " + plural(outputs, "output") + ", ";
  if (!job.is_spmd())
    if (const size_t held = ranks_held(job).size(); held < job.world) out += std::to_string(held) + " of ";
  out += plural(job.world, "rank");
  if (job.is_spmd()) return out + (job.world == 1 ? "" : " running one program");
  return out + " in " + plural(job.programs.size(), "program");
}

std::string describe_json(const Args& args, const Job& job, const std::string& file, std::string_view passes) {
  JsonWriter json;
  json.begin_object().member("schema", args.tool().name).member("version", 1);
  json.member("file", file).member("nodes", job.node_count());
  size_t inputs = 0, outputs = 0;
  if (!job.programs.empty()) {
    inputs = job.programs[0]->graph.inputs().size();
    outputs = job.programs[0]->graph.outputs().size();
  }
  json.member("inputs", inputs).member("outputs", outputs).member("world", job.world);
  json.key("programs").begin_array();
  for (const auto& program : job.programs) {
    write_ranks(program->ranks, &json.begin_object());
    json.member("nodes", program->graph.node_count()).end_object();
  }
  json.end_array();
  if (!passes.empty()) json.key("passes").raw(passes);
  return json.end_object().take();
}

std::string describe_long(const Job& job) {
  const StringTable& strings = job.pool->strings;
  std::string out = "title     " + strings.str(job.title) + "\nworld     " + std::to_string(job.world) + "\n";
  for (const KeyValue& kv : job.producer) out += "producer  " + strings.str(kv.key) + " " + strings.str(kv.json) + "\n";
  for (const Group& group : job.groups) {
    out += "group     " + strings.str(group.axis);
    for (const GroupPart& part : group.parts) out += " [" + spelled(part.ranks) + "]";
    out += "\n";
  }
  for (const auto& program : job.programs) {
    out += "program   rank " + spelled(program->ranks) + ": " + plural(program->graph.node_count(), "node") + ", " +
           plural(program->graph.inputs().size(), "input") + ", " + plural(program->graph.outputs().size(), "output") +
           ", " + plural(program->symbols.size(), "symbol") + ", " + plural(program->nested.size(), "nested graph") +
           "\n";
  }
  return out;
}

}  // namespace sg::cli
