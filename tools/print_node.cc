#include "tools/print_node.h"

#include "libgraph/base/nearest.h"
#include "libgraph/story/node_story.h"
#include "libgraph/text/text_printer.h"

namespace sg::cli {
namespace {

void print_with_users(text::TextPrinter* print, const Program& program, const Graph& graph, const std::string& name,
                      std::string* out) {
  NodeId n = graph.find_node(name);
  if (!n) return;
  *out += "# " + place_of(program, graph, n) + "\n" + print->node_alone(program, graph, n) + "\n";
  for (uint32_t i = 0; i < graph.node(n).result_count; ++i)
    for (NodeId user : graph.users(graph.node(n).result(i)))
      *out += "  " + print->node_alone(program, graph, user) + "\n";
}

}  // namespace

Result<std::string> node_report(const Job& job, std::string name) {
  if (name.starts_with('%')) name.erase(0, 1);
  std::string out;
  Nearest nearest(name);
  text::TextPrinter print(job);
  for (const auto& program : job.programs) {
    print_with_users(&print, *program, program->graph, name, &out);
    for (const auto& nested : program->nested) print_with_users(&print, *program, nested->graph, name, &out);
    for (NodeId n : program->graph.nodes()) nearest.offer(program->graph.label(n));
  }
  if (!out.empty()) return out;
  std::string hint;
  for (const auto& program : job.programs)
    if (hint.empty()) hint = hint_of_module(program->graph, name);
  return Error{ErrorKind::cannot_apply, "the graph has no node %" + name, {}, hint.empty() ? nearest.hint("%") : hint};
}

}  // namespace sg::cli
