// Lists the contents of an archive, for --list.
#include "libgraph/base/human.h"
#include "libgraph/base/json.h"
#include "libgraph/import/pt2_read.h"
#include "libgraph/shape_text.h"

namespace sg {
namespace {

size_t count_of(simdjson::dom::element root, std::string_view list) {
  simdjson::dom::array items;
  return root["graph_module"]["graph"][list].get(items) ? 0 : items.size();
}

void list_payload(const std::string& fqn, const Pt2Payload& p, std::string* text, JsonWriter* json) {
  json->begin_object().member("name", fqn).member("entry", p.entry).member("pickled", p.is_pickled);
  *text += "    " + fqn + "  ";
  if (p.has_meta) {
    json->member("dtype", dtype_name(p.dtype)).key("shape").begin_array();
    for (int64_t size : p.shape) json->integer(size);
    json->end_array();
    *text += type_text(p.dtype, p.shape) + "  ";
  }
  json->end_object();
  *text += p.entry + (p.is_pickled ? "  pickled: not read" : "") + "\n";
}

Status list_model(const ZipArchive& archive, const Pt2Model& model, std::string* text, JsonWriter* json) {
  SG_ASSIGN(std::unique_ptr<CaptureText> program, read_json_entry(archive, model.program));
  simdjson::dom::element root = program->root();
  std::string_view torch;
  int64_t major = 0, minor = 0;
  if (root["torch_version"].get(torch)) torch = "?";
  if (root["schema_version"]["major"].get(major) || root["schema_version"]["minor"].get(minor)) major = minor = 0;
  size_t nodes = count_of(root, "nodes"), inputs = count_of(root, "inputs"), outputs = count_of(root, "outputs");
  std::string schema = std::to_string(major) + "." + std::to_string(minor);
  *text += "  model " + model.name + ": " + plural(nodes, "node") + ", " + plural(inputs, "input") + ", " +
           plural(outputs, "output") + "; schema " + schema + ", torch " + std::string(torch) + "\n";
  json->begin_object().member("name", model.name).member("nodes", nodes).member("inputs", inputs);
  json->member("outputs", outputs).member("schema", schema).member("torch", torch).key("tensors").begin_array();
  SG_ASSIGN(Pt2Payloads payloads, read_payloads(archive, model));
  for (const auto& [fqn, payload] : payloads) list_payload(fqn, payload, text, json);
  json->end_array().key("pickles").begin_array();
  for (const std::string& entry : model.pickles) {
    *text += "    " + entry + "  pickled: not read\n";
    json->string(entry);
  }
  json->end_array().end_object();
  return ok_status();
}

}  // namespace

Result<Pt2Listing> list_pt2(std::string_view bytes, const std::string& name) {
  SG_ASSIGN(ZipArchive archive, ZipArchive::open(bytes, name));
  SG_ASSIGN(Pt2Layout layout, find_layout(archive));
  Pt2Listing out;
  JsonWriter json;
  json.begin_object().member("schema", "sg-import-list").member("version", 1).member("file", name);
  json.member("kind", "pt2").key("models").begin_array();
  out.text = name + ": " + layout.format + ", " + std::to_string(archive.entries().size()) + " entries\n";
  for (const Pt2Model& model : layout.models) SG_TRY(list_model(archive, model, &out.text, &json));
  json.end_array().key("entries").begin_array();
  out.text += "  entries\n";
  for (const ZipEntry& entry : archive.entries()) {
    json.begin_object().member("name", entry.name).member("bytes", entry.bytes).end_object();
    out.text += "    " + entry.name + "  " + std::to_string(entry.bytes) + "\n";
  }
  json.end_array().end_object();
  out.json = json.take() + "\n";
  return out;
}

}  // namespace sg
