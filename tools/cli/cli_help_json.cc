// --help-json: a description of a tool for programs, from the same tables as --help.
#include "libgraph/base/json.h"
#include "tools/cli/cli.h"

namespace sg::cli {
namespace {

void add_options(std::span<const Option> options, JsonWriter& json) {
  json.begin_array();
  for (const Option& o : options) {
    json.begin_object().key("name").string(o.name);
    if (o.letter != 0) json.key("letter").string(std::string(1, o.letter));
    if (!o.argument.empty()) json.key("argument").string(o.argument);
    std::vector<std::string_view> choices = choices_of(o.argument);
    if (!choices.empty()) {
      json.key("choices").begin_array();
      for (std::string_view choice : choices) json.string(choice);
      json.end_array();
    }
    if (!o.fallback.empty()) json.key("default").string(o.fallback);
    json.key("repeated").boolean(o.repeated).key("help").string(o.help).end_object();
  }
  json.end_array();
}

}  // namespace

std::string help_json(const Tool& tool) {
  JsonWriter json;
  json.begin_object().key("schema").string("sg-help").key("version").integer(1);
  json.key("tool").string(tool.name).key("suite_version").string(kVersion).key("summary").string(tool.summary);
  json.key("operands").string(tool.operands).key("details").string(tool.details);
  if (!tool.commands.empty()) {
    json.key("commands").begin_array();
    for (std::string_view c : tool.commands) json.string(c);
    json.end_array();
  }
  json.key("options"), add_options(tool.options, json);
  json.key("common_options"), add_options(useful_common_options(tool), json);
  json.key("examples").begin_array();
  for (const Example& e : tool.examples)
    json.begin_object().key("command").string(e.command).key("what").string(e.what).end_object();
  return json.end_array().end_object().take() + "\n";
}

}  // namespace sg::cli
