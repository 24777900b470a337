// The columns of the nodes: label, line, op, module, phase, source; their arguments, bodies and ports.
#include "libgraph/operands.h"
#include "libgraph/sim/critical_path.h"
#include "libgraph/story/source_text.h"
#include "libgraph/text/text_printer.h"
#include "libgraph/view/view_columns.h"

namespace sg {

uint32_t ViewStrings::index(std::string text) {
  auto [at, is_new] = index_.try_emplace(std::move(text), static_cast<uint32_t>(texts_.size()));
  if (is_new) texts_.push_back(&at->first);
  return at->second;
}

void ViewStrings::write(JsonWriter* json) const {
  json->key("strings").begin_array();
  for (const std::string* text : texts_) json->string(*text);
  json->end_array();
}

ViewGraph::ViewGraph(const Job& the_job, const Program& the_program, const Graph& the_graph)
    : job(&the_job), program(&the_program), graph(&the_graph), position_of(the_graph.node_id_limit(), 0) {
  for (NodeId n : graph->nodes()) {
    position_of[n.index] = static_cast<int64_t>(nodes.size());
    nodes.push_back(n);
  }
}

int64_t ViewGraph::maker_of(ValueId v) const {
  const Value& value = graph->value(v);
  return value.def.is_none() ? -1 - static_cast<int64_t>(value.index) : position_of[value.def.index];
}

void write_column(JsonWriter* json, std::string_view key, size_t n, const std::function<int64_t(size_t)>& fn) {
  json->key(key).begin_array();
  for (size_t i = 0; i < n; ++i) json->integer(fn(i));
  json->end_array();
}

namespace {

// The makers of all nodes' arguments as one list, and where each node's part begins.
void write_edges(JsonWriter* json, const ViewGraph& view) {
  std::vector<int64_t> begin{0}, makers;
  for (NodeId n : view.nodes) {
    for_operands(*view.graph, n, [&](ValueId v) { makers.push_back(view.maker_of(v)); });
    begin.push_back(static_cast<int64_t>(makers.size()));
  }
  write_column(json, "arg_begin", begin.size(), [&](size_t i) { return begin[i]; });
  write_column(json, "args", makers.size(), [&](size_t i) { return makers[i]; });
}

// The bodies that nodes run: [position, index of the body].
void write_bodies(JsonWriter* json, const ViewGraph& view) {
  json->key("bodies").begin_array();
  for (size_t i = 0; i < view.nodes.size(); ++i)
    for (const Arg& arg : view.graph->node(view.nodes[i]).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::graph)) json->begin_array().natural(i).natural(a.as_graph().index).end_array();
      });
  json->end_array();
}

void write_ports(JsonWriter* json, const ViewGraph& view, text::TextPrinter* printer) {
  json->key("inputs").begin_array();
  for (const Input& input : view.graph->inputs()) json->string(printer->input_alone(*view.graph, input));
  json->end_array().key("outputs").begin_array();
  for (const Output& output : view.graph->outputs()) {
    json->begin_array();
    if (output.value.is_none()) json->null();
    else json->integer(view.maker_of(output.value));
    json->string(printer->output_alone(*view.graph, output)).end_array();
  }
  json->end_array();
}

}  // namespace

void write_nodes(JsonWriter* json, const ViewGraph& view, ViewTexts* texts) {
  const Graph& graph = *view.graph;
  const Pool& pool = graph.pool();
  text::TextPrinter& printer = texts->printer;
  ViewStrings* strings = &texts->strings;
  size_t n = view.nodes.size();
  auto node = [&](size_t i) -> const Node& { return graph.node(view.nodes[i]); };
  auto text = [&](StrId id) { return strings->index(id.is_none() ? std::string() : std::string(pool.strings[id])); };

  json->key("label").begin_array();
  for (NodeId id : view.nodes) json->string(graph.label(id));
  json->end_array().key("line").begin_array();
  for (NodeId id : view.nodes) json->string(printer.node_alone(*view.program, graph, id));
  json->end_array();
  write_column(json, "op", n, [&](size_t i) { return strings->index(std::string(graph.op_name(view.nodes[i]))); });
  write_column(json, "module", n, [&](size_t i) { return text(node(i).module); });
  write_column(json, "phase", n, [&](size_t i) { return static_cast<int64_t>(node(i).phase); });
  write_column(json, "source", n, [&](size_t i) { return strings->index(source_of(graph, view.nodes[i])); });
  write_column(json, "forward", n,
               [&](size_t i) { return node(i).forward.is_none() ? -1 : view.position_of[node(i).forward.index]; });
  write_edges(json, view);
  write_bodies(json, view);
  write_ports(json, view, &printer);
}

}  // namespace sg
