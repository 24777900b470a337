#include "tools/import/import_types.h"

#include "libgraph/base/human.h"
#include "libgraph/base/json.h"
#include "libgraph/infer/check_types.h"
#include "libgraph/text/text_printer.h"

namespace sg::cli {
namespace {

std::string type_text(text::TextPrinter* print, Pool* pool, const Type& type) {
  return type.kind == TypeKind::unknown ? "nothing" : print->type_alone(pool->types.intern(type));
}

void add_disagreement(text::TextPrinter* print, const Program& program, const TypeDisagreement& d, std::string* text,
                      JsonWriter& json) {
  const Graph& graph = *d.graph;
  std::string place = place_of(program, graph, d.node);
  std::string result(graph.name(graph.node(d.node).result(d.result)));
  std::string inferred = type_text(print, &graph.pool(), d.inferred),
              recorded = type_text(print, &graph.pool(), d.recorded);
  *text += place + ", %" + result + " = " + std::string(graph.op_name(d.node)) + ": recorded " + recorded +
           ", inferred " + inferred + (d.reason.empty() ? "" : ": " + d.reason) + "\n";
  if (d.exception != nullptr) *text += "  known: " + std::string(d.exception->reason) + "\n";
  json.begin_object().member("place", place).member("result", result);
  json.member("op", graph.op_name(d.node)).member("recorded", recorded).member("inferred", inferred);
  if (!d.reason.empty()) json.member("reason", d.reason);
  if (d.exception != nullptr) json.member("known", d.exception->reason);
  json.end_object();
}

}  // namespace

TypeReport type_report(const Job& job, const std::string& name) {
  TypeReport out;
  size_t known = 0;
  text::TextPrinter print(job);
  JsonWriter json;
  json.begin_object().member("schema", "sg-import-check").member("version", 1).member("file", name);
  json.key("disagreements").begin_array();
  for (const auto& program : job.programs)
    for (const TypeDisagreement& d : check_types(*program)) {
      add_disagreement(&print, *program, d, &out.text, json);
      (d.exception != nullptr ? known : out.count) += 1;
    }
  json.end_array().member("unexplained", out.count).member("known", known).end_object();
  out.json = json.take() + "\n";
  out.text += name + ": " + (out.count == 0 ? "recorded and inferred types agree" : plural(out.count, "disagreement"));
  out.text += known == 0 ? "\n" : ", " + std::to_string(known) + " known to be the recorder's\n";
  return out;
}

}  // namespace sg::cli
