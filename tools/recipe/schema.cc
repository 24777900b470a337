#include "tools/recipe/schema.h"

#include "libgraph/base/json.h"

namespace sg::recipe {
namespace {

class Writer {
 public:
  std::string take() { return json_.take() + "\n"; }

  void top(ToolTable* tools, const std::vector<OptionRow>& import, const std::vector<OptionRow>& run) {
    json_.begin_object();
    text("$schema", "https://json-schema.org/draft/2020-12/schema")
        .text("title", "a recipe of Stepgraph passes")
        .text("type", "object");
    json_.member("additionalProperties", false).key("properties").begin_object();
    string_property("recipe", "its name (default: the file's name)");
    string_property("about", "for people");
    word_list("include", "recipes whose parts come before this one's");
    string_property("machine", "of assertions about time: as sg-sim --machine");
    map_of_words("parameters", "names and values; $name stands for one");
    map_of_words("matrix", "names and lists of values: one variant for each combination");
    inputs(import);
    stages(tools, run);
    json_.end_object().end_object();
  }

 private:
  Writer& text(std::string_view key, std::string_view value) {
    json_.member(key, value);
    return *this;
  }

  void string_property(std::string_view name, std::string_view about) {
    json_.key(name).begin_object();
    text("type", "string").text("description", about);
    json_.end_object();
  }

  void words(std::initializer_list<std::string_view> list) {
    json_.begin_array();
    for (std::string_view w : list) json_.string(w);
    json_.end_array();
  }

  void word_list(std::string_view name, std::string_view about) {
    json_.key(name).begin_object();
    text("description", about);
    scalar_or_list();
    json_.end_object();
  }

  void scalar_or_list() {
    json_.key("type");
    words({"string", "number", "boolean", "array"});
    json_.key("items").begin_object().key("type");
    words({"string", "number", "boolean"});
    json_.end_object();
  }

  void map_of_words(std::string_view name, std::string_view about) {
    json_.key(name).begin_object();
    text("type", "object").text("description", about);
    json_.key("additionalProperties").begin_object();
    scalar_or_list();
    json_.end_object().end_object();
  }

  // The options of a tool, as properties of an object.
  void options(const std::vector<OptionRow>& rows) {
    for (const OptionRow& row : rows) {
      json_.key(row.name).begin_object();
      if (row.argument.empty()) {
        json_.key("type");
        words({"boolean", "null"});
      } else {
        text("description", row.argument);
        if (row.repeated) scalar_or_list();
        else json_.key("type"), words({"string", "number"});
      }
      json_.end_object();
    }
  }

  void inputs(const std::vector<OptionRow>& import) {
    json_.key("inputs").begin_object();
    text("type", "object").text("description", "graphs by name: a file, or a source to import");
    json_.key("additionalProperties").begin_object().key("oneOf").begin_array();
    json_.begin_object().member("type", "string").end_object();
    json_.begin_object().member("type", "object").key("required");
    words({"import"});
    json_.member("additionalProperties", false).key("properties").begin_object();
    string_property("import", "what sg-import reads");
    options(import);
    json_.end_object().end_object().end_array().end_object().end_object();
  }

  void run_property(const std::vector<OptionRow>& run) {
    json_.begin_object()
        .member("type", "object")
        .member("additionalProperties", false)
        .key("properties")
        .begin_object();
    string_property("bitwise_to", "an input or a stage before: the outputs are equal to the bit");
    json_.key("ranks").begin_object();
    json_.key("type"), words({"integer", "string"});
    text("description", "how many ranks the job must have");
    json_.end_object();
    options(run);
    json_.end_object().end_object();
  }

  void stages(ToolTable* tools, const std::vector<OptionRow>& run) {
    json_.key("stages").begin_object().member("type", "array").key("items").begin_object().key("oneOf").begin_array();
    json_.begin_object().key("enum").begin_array();
    for (const PassInfo* p : all_passes()) json_.string(p->name);
    json_.end_array().end_object();
    json_.begin_object()
        .member("type", "object")
        .member("additionalProperties", false)
        .key("properties")
        .begin_object();
    string_property("name", "how later stages call it (default: the tool's name)");
    string_property("from", "the stage or input that it reads (default: the one before)");
    string_property("expect", "a golden that the result equals");
    string_property("ignore", "differences to ignore: name, meta, order, loc");
    string_property("output", "where the result is written");
    word_list("assert", "what holds of the result: peak < 70GiB, no op=aten.copy_");
    json_.key("run").begin_object().key("oneOf").begin_array();
    run_property(run);
    json_.begin_object().member("type", "array").key("items");
    run_property(run);
    json_.end_object().end_array().end_object();
    for (const PassInfo* p : all_passes()) {
      json_.key(p->name).begin_object().key("type");
      words({"object", "null"});
      text("description", p->summary);
      json_.member("additionalProperties", false).key("properties").begin_object();
      options(tools->of_pass(*p));
      json_.end_object().end_object();
    }
    json_.end_object().end_object().end_array().end_object().end_object();
  }

  JsonWriter json_{JsonWriter::Style::pretty};
};

}  // namespace

Result<std::string> recipe_schema(ToolTable* tools) {
  SG_ASSIGN(const auto* import, tools->of_tool("import"));
  SG_ASSIGN(const auto* run, tools->of_tool("run"));
  Writer writer;
  writer.top(tools, *import, *run);
  return writer.take();
}

}  // namespace sg::recipe
