#include "libgraph/import/pt2.h"

#include "libgraph/base/joined.h"
#include "libgraph/import/pt2_read.h"

namespace sg {
namespace {

// `text` must live until the job is complete: metadata may point into it, names and types do not.
Status read_text(const CaptureText& text, ImportContext* context) {
  context->job.world = 1;
  Program& program = context->job.add_program();
  program.ranks = {};
  Pt2Reader reader(context, text);
  return reader.read(&program);
}

// The producer: {"torch": "2.15.0", "schema": "8.20"}.
void set_producer(const Json& root, ImportContext* context) {
  Extras producer;
  std::string_view torch;
  int64_t major = 0, minor = 0;
  if (!root.element["torch_version"].get(torch))
    producer.add("torch", canonical_json(root.element["torch_version"].value_unsafe()));
  simdjson::dom::element version = root.element["schema_version"].value_unsafe();
  if (!version["major"].get(major) && !version["minor"].get(minor))
    producer.add("schema", "\"" + std::to_string(major) + "." + std::to_string(minor) + "\"");
  context->job.producer = producer.take(&context->pool());
}

Result<Job> import_text(const CaptureText& text, std::string_view title, Diagnostics* notes) {
  ImportContext context(false);
  SG_TRY(read_text(text, &context));
  set_producer({text.root(), nullptr, &text}, &context);
  context.job.title = context.str(title);
  context.job.extra = context.job_extras.take(&context.pool());
  if (notes != nullptr) context.tally.report(ImportTally::kNoRank, notes);
  return std::move(context.job);
}

Result<const Pt2Model*> choose(const Pt2Layout& layout, const std::string& wanted, const std::string& archive) {
  for (const Pt2Model& model : layout.models)
    if (model.name == wanted) return &model;
  if (wanted.empty() && layout.models.size() == 1) return &layout.models[0];
  const std::string names = joined(layout.models, ", ", &Pt2Model::name);
  std::string message = wanted.empty() ? "the archive holds several models: " + names
                                       : "the archive holds no model `" + wanted + "`, but: " + names;
  return Error{ErrorKind::unreadable, std::move(message), {archive}, "--model NAME says which"};
}

}  // namespace

Result<Pt2Import> import_pt2(std::string_view bytes, const std::string& name, const Pt2Options& options,
                             Diagnostics* notes) {
  Diagnostics unheard;
  if (notes == nullptr) notes = &unheard;
  SG_ASSIGN(ZipArchive archive, ZipArchive::open(bytes, name));
  SG_ASSIGN(Pt2Layout layout, find_layout(archive));
  SG_ASSIGN(const Pt2Model* model, choose(layout, options.model, name));
  SG_ASSIGN(std::unique_ptr<CaptureText> text, read_json_entry(archive, model->program));
  Pt2Import out;
  // PyTorch names the folder after the file, or "archive" if it wrote to a stream.
  bool is_named = !layout.root.empty() && layout.root != "archive/" && layout.root != "package/";
  std::string title = model->name == "model" && is_named ? layout.root.substr(0, layout.root.size() - 1) : model->name;
  SG_ASSIGN(out.job, import_text(*text, title, notes));
  SG_TRY(read_weights(archive, *model, layout, &out, notes));
  return out;
}

Result<Job> import_exported_program(std::string json, const std::string& name, Diagnostics* notes) {
  quote_bare_numbers(&json);
  CaptureText text(name, std::move(json));
  SG_TRY(text.parse());
  return import_text(text, "model", notes);
}

}  // namespace sg
