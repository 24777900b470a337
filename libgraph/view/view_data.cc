#include "libgraph/view/view_data.h"

#include <optional>
#include <unordered_map>

#include "libgraph/names.h"
#include "libgraph/story/ranks_text.h"
#include "libgraph/view/view_columns.h"

namespace sg {
namespace {

// What was in each program's place before, found once for all programs.
class ChangesByProgram {
 public:
  explicit ChangesByProgram(const ViewSources& from) {
    for (size_t i = 0; from.diff != nullptr && i < from.diff->programs.size(); ++i)
      changes_.emplace(from.diff->programs[i].b, &from.diff->programs[i]);
    for (size_t i = 0; from.before.job != nullptr && i < from.before.job->programs.size(); ++i)
      before_.emplace(from.before.job->programs[i].get(), i);
  }
  const ProgramDiff* of(const Program& program) const {
    auto found = changes_.find(&program);
    return found == changes_.end() ? nullptr : found->second;
  }
  // The older program's index in its job.
  std::optional<size_t> index_before(const Program* program) const {
    auto found = before_.find(program);
    return found == before_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::unordered_map<const Program*, const ProgramDiff*> changes_;
  std::unordered_map<const Program*, size_t> before_;
};

const GraphDiff* changes_of(const ProgramDiff* diff, const Graph& graph) {
  if (!diff) return nullptr;
  for (const GraphDiff& g : diff->graphs)
    if (g.b == &graph && g.a) return &g;
  return nullptr;
}

void write_program_before(JsonWriter* json, size_t p, const ViewedBefore& before) {
  const Program& program = *before.job->programs[p];
  const SymbolValues& values = (*before.values)[p];
  write_before(
      json, ViewGraph(*before.job, program, program.graph), [&values](StrId symbol) { return values.value(symbol); },
      before.simulation->programs[p]);
}

void write_program(JsonWriter* json, const Job& job, size_t p, const ViewSources& from,
                   const ChangesByProgram& changes_by_program, ViewTexts* texts) {
  const Program& program = *job.programs[p];
  std::vector<ViewGraph> graphs;
  graphs.emplace_back(job, program, program.graph);
  for (const auto& nested : program.nested) graphs.emplace_back(job, program, nested->graph);

  const ProgramDiff* changes = changes_by_program.of(program);
  json->begin_object().member("ranks", ranks_text(program.ranks, job.world)).key("graphs").begin_array();
  for (size_t g = 0; g < graphs.size(); ++g) {
    json->begin_object().member("name", g == 0 ? "" : job.pool->strings[program.nested[g - 1]->name]);
    write_nodes(json, graphs[g], texts);
    if (const GraphDiff* diff = changes_of(changes, *graphs[g].graph)) write_changes(json, graphs[g], *diff, texts);
    json->end_object();
  }
  json->end_array();
  const SymbolValues& values = (*from.values)[p];
  write_memory(json, graphs[0], [&values](StrId symbol) { return values.value(symbol); });
  if (from.simulation) write_times(json, job, graphs, from.simulation->programs[p]);
  const std::optional<size_t> before = changes ? changes_by_program.index_before(changes->a) : std::nullopt;
  if (before) write_program_before(json, *before, from.before);
  json->end_object();
}

}  // namespace

std::string view_json(const Job& job, const ViewSources& from) {
  JsonWriter json;
  ViewTexts texts(job, from.diff != nullptr ? from.diff->a : nullptr);
  const ChangesByProgram changes(from);
  json.begin_object().member("schema", "sg-view").member("version", 1);
  json.member("name", from.name).member("name_before", from.name_before);
  json.member("title", job.pool->strings[job.title]).member("world", job.world);
  json.member("machine", from.simulation ? from.machine : "");
  json.key("phases").begin_array();
  for (std::string_view phase : names_of<Phase>()) json.string(phase);
  json.end_array().key("programs").begin_array();
  for (size_t p = 0; p < job.programs.size(); ++p) write_program(&json, job, p, from, changes, &texts);
  json.end_array();
  texts.strings.write(&json);
  return json.end_object().take();
}

}  // namespace sg
