// --help-json and --completions: what programs and shells want to know of a tool, from the same tables as --help.
#include "libgraph/json.h"
#include "tools/cli.h"

namespace sg::cli {
namespace {

void add_options(std::span<const Option> options, JsonWriter& json) {
  json.begin_array();
  for (const Option& o : options) {
    json.begin_object().key("name").string(o.name);
    if (o.letter != 0) json.key("letter").string(std::string(1, o.letter));
    if (!o.argument.empty()) json.key("argument").string(o.argument);
    std::vector<std::string_view> choices = choices_of(o);
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

// Calls fn with each option of a tool, its own before those of all.
template <class Fn>
void for_each_option(const Tool& tool, const Fn& fn) {
  for (std::span<const Option> table : {tool.options, common_options()})
    for (const Option& o : table) fn(o);
}

std::string joined(const std::vector<std::string_view>& words) {
  std::string out;
  for (std::string_view word : words) out += (out.empty() ? "" : " ") + std::string(word);
  return out;
}

// For single quotes, the same in all three shells but for how a quote itself is written.
std::string quoted(std::string_view s, std::string_view quote_as) {
  std::string out = "'";
  for (char c : s) c == '\'' ? void(out += quote_as) : void(out += c);
  return out + "'";
}

std::string function_of(const Tool& tool) {
  std::string out = "_" + std::string(tool.name);
  for (char& c : out) c = c == '-' ? '_' : c;
  return out;
}

std::string commands_of(const Tool& tool) {
  std::string out;
  for (std::string_view c : tool.commands) out += (out.empty() ? "" : " ") + std::string(c);
  return out;
}

// --- bash ---

std::string bash(const Tool& tool) {
  std::string words, cases;
  for_each_option(tool, [&](const Option& o) {
    words += (words.empty() ? "--" : " --") + std::string(o.name);
    if (o.argument.empty()) return;
    std::string names = "--" + std::string(o.name) + (o.letter != 0 ? std::string("|-") + o.letter : "");
    std::vector<std::string_view> choices = choices_of(o);
    std::string with = choices.empty() ? o.argument == "FILE" ? "-f" : "" : "-W " + quoted(joined(choices), "'\\''");
    cases += "    " + names + ") " + (with.empty() ? "" : "COMPREPLY=($(compgen " + with + " -- \"$cur\")); ") + "return ;;\n";
  });
  std::string out = function_of(tool) + "() {\n  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\"\n";
  if (!tool.commands.empty()) {
    out += "  if [ \"$COMP_CWORD\" -gt 1 ]; then\n    case \"${COMP_WORDS[1]}\" in\n";
    for (std::string_view c : tool.commands)
      out += "      " + std::string(c) + ") if declare -F _sg_" + std::string(c) + " >/dev/null; then _sg_" + std::string(c) + "; return; fi ;;\n";
    out += "    esac\n  fi\n";
  }
  out += "  case \"$prev\" in\n" + cases + "  esac\n  case \"$cur\" in\n    -*) COMPREPLY=($(compgen -W " +
         quoted(words, "'\\''") + " -- \"$cur\")) ;;\n";
  out += "    *) COMPREPLY=($(compgen " + (tool.commands.empty() ? "-f" : "-W " + quoted(commands_of(tool), "'\\''")) +
         " -- \"$cur\")) ;;\n  esac\n}\n";
  return out + "complete -o filenames -F " + function_of(tool) + " " + std::string(tool.name) + "\n";
}

// --- zsh ---

std::string zsh(const Tool& tool) {
  std::string out = function_of(tool) + "() {\n  _arguments -s -S \\\n";
  for_each_option(tool, [&](const Option& o) {
    std::string help;
    for (char c : o.help) help += c == '[' || c == ']' || c == ':' ? std::string("\\") + c : std::string(1, c);
    std::string value;
    if (!o.argument.empty()) {
      std::vector<std::string_view> choices = choices_of(o);
      value = ":" + std::string(choices.empty() ? o.argument : o.name) + ":" +
              (choices.empty() ? o.argument == "FILE" ? "_files" : "" : "(" + joined(choices) + ")");
    }
    for (const std::string& name : {std::string("--") + std::string(o.name) + (o.argument.empty() ? "" : "="),
                                    o.letter != 0 ? std::string("-") + o.letter : std::string()})
      if (!name.empty()) out += "    " + quoted((o.repeated ? "*" : "") + name + "[" + help + "]" + value, "'\\''") + " \\\n";
  });
  out += tool.commands.empty() ? "    '*:file:_files'\n" : "    " + quoted("1:command:(" + commands_of(tool) + ")", "'\\''") + " '*:file:_files'\n";
  return out + "}\ncompdef " + function_of(tool) + " " + std::string(tool.name) + "\n";
}

// --- fish ---

std::string fish(const Tool& tool) {
  std::string out;
  for_each_option(tool, [&](const Option& o) {
    out += "complete -c " + std::string(tool.name) + " -l " + std::string(o.name);
    if (o.letter != 0) out += std::string(" -s ") + o.letter;
    std::vector<std::string_view> choices = choices_of(o);
    if (!choices.empty()) out += " -x -a " + quoted(joined(choices), "\\'");
    else if (!o.argument.empty()) out += o.argument == "FILE" ? " -r" : " -x";
    out += " -d " + quoted(o.help, "\\'") + "\n";
  });
  if (!tool.commands.empty())
    out += "complete -c " + std::string(tool.name) + " -f -n __fish_use_subcommand -a " + quoted(commands_of(tool), "\\'") + "\n";
  return out;
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
  json.key("common_options"), add_options(common_options(), json);
  json.key("examples").begin_array();
  for (const Example& e : tool.examples) json.begin_object().key("command").string(e.command).key("what").string(e.what).end_object();
  return json.end_array().end_object().take() + "\n";
}

std::string completions(const Tool& tool, std::string_view shell) {
  return shell == "bash" ? bash(tool) : shell == "zsh" ? zsh(tool) : fish(tool);
}

}  // namespace sg::cli
