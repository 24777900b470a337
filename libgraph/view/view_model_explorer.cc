#include "libgraph/names.h"
#include "libgraph/operands.h"
#include "libgraph/sim/critical_path.h"
#include "libgraph/story/source_text.h"
#include "libgraph/text/text_printer.h"
#include "libgraph/view/view_columns.h"
#include "libgraph/view/view_formats.h"

namespace sg {
namespace {

// "layers.0.mlp" -> "layers/0/mlp": Model Explorer groups by slashes.
std::string namespace_of(const Graph& graph, const Node& node) {
  std::string out = node.module.is_none() ? "" : std::string(graph.pool().strings[node.module]);
  for (char& c : out)
    if (c == '.') c = '/';
  return out;
}

void attribute(JsonWriter* json, std::string_view key, std::string_view value) {
  if (!value.empty()) json->begin_object().member("key", key).member("value", value).end_object();
}

class GraphWriter {
 public:
  GraphWriter(JsonWriter* json, const ViewGraph& view) : json_(json), view_(view), printer_(*view.job) {}

  void write(const std::string& id) {
    json_->begin_object().member("id", id).key("nodes").begin_array();
    for (size_t i = 0; i < view_.graph->inputs().size(); ++i) input(i);
    for (size_t i = 0; i < view_.nodes.size(); ++i) node(i);
    json_->end_array().end_object();
  }

 private:
  static std::string id_of(int64_t maker) {
    return maker < 0 ? "input " + std::to_string(-1 - maker) : std::to_string(maker);
  }

  void input(size_t i) {
    const Input& input = view_.graph->inputs()[i];
    json_->begin_object().member("id", id_of(-1 - static_cast<int64_t>(i)));
    json_->member("label", view_.graph->name(input.value)).member("namespace", "inputs");
    json_->key("incomingEdges").begin_array().end_array().key("attrs").begin_array();
    attribute(json_, "kind", name_of(input.kind));
    attribute(json_, "type", printer_.type_alone(view_.graph->value(input.value).type));
    json_->end_array().end_object();
  }

  void node(size_t i) {
    const Graph& graph = *view_.graph;
    NodeId n = view_.nodes[i];
    json_->begin_object().member("id", id_of(static_cast<int64_t>(i))).member("label", graph.op_name(n));
    json_->member("namespace", namespace_of(graph, graph.node(n))).key("incomingEdges").begin_array();
    size_t slot = 0;
    for_operands(graph, n, [&](ValueId v) { edge(v, slot++); });
    json_->end_array().key("attrs").begin_array();
    attribute(json_, "name", graph.label(n));
    attribute(json_, "phase", name_of(graph.node(n).phase));
    attribute(json_, "source", source_of(graph, n));
    attribute(json_, "line", printer_.node_alone(*view_.program, graph, n));
    json_->end_array().key("outputsMetadata").begin_array();
    for (uint32_t r = 0; r < graph.node(n).result_count; ++r) result(graph.node(n).result(r), r);
    json_->end_array().end_object();
  }

  void edge(ValueId v, size_t slot) {
    const Value& value = view_.graph->value(v);
    json_->begin_object().member("sourceNodeId", id_of(view_.maker_of(v)));
    json_->member("sourceNodeOutputId", std::to_string(value.def.is_none() ? 0 : value.index));
    json_->member("targetNodeInputId", std::to_string(slot)).end_object();
  }

  void result(ValueId v, uint32_t r) {
    json_->begin_object().member("id", std::to_string(r)).key("attrs").begin_array();
    attribute(json_, "tensor_shape", printer_.type_alone(view_.graph->value(v).type));
    attribute(json_, "name", view_.graph->name(v));
    json_->end_array().end_object();
  }

  JsonWriter* json_;
  const ViewGraph& view_;
  text::TextPrinter printer_;
};

}  // namespace

std::string view_model_explorer(const Job& job) {
  JsonWriter json;
  json.begin_object().member("label", job.pool->strings[job.title].empty() ? "step" : job.pool->strings[job.title]);
  json.key("graphs").begin_array();
  for (const auto& program : job.programs) {
    std::string rank = program->ranks.empty() ? "" : " rank " + std::to_string(program->ranks.front());
    GraphWriter(&json, ViewGraph(job, *program, program->graph)).write("step" + rank);
    for (const auto& nested : program->nested)
      GraphWriter(&json, ViewGraph(job, *program, nested->graph))
          .write(std::string(job.pool->strings[nested->name]) + rank);
  }
  return json.end_array().end_object().take();
}

}  // namespace sg
