// --print-config: the settings of a tool, and where each comes from.
#include <algorithm>
#include <cstdlib>

#include "libgraph/base/json.h"
#include "tools/cli/cli.h"

namespace sg::cli {
namespace {

// The environment variables that the tools read, besides the launchers' rank variables; options take precedence.
constexpr std::string_view kEnvironment[] = {"NO_COLOR",        "TERM",           "COLUMNS",          "TMPDIR",
                                             "STEPGRAPH_CACHE", "XDG_CACHE_HOME", "STEPGRAPH_PYTHON", "SG_CUDA_CACHE",
                                             "SG_CUDA_SHARE",   "SG_CUDA_SPLIT"};

struct Setting {
  std::string name, value, origin;
};

Setting setting_of(const Args& args, const CommandLine& line, const Option& o) {
  Setting out{"--" + std::string(o.name), {}, "default"};
  if (o.argument.empty()) out.value = args.has(o.name) ? "yes" : "no";
  else if (!o.repeated) out.value = args.text(o.name);
  for (const std::string& value : o.argument.empty() || !o.repeated ? std::vector<std::string>() : args.all(o.name))
    out.value += (out.value.empty() ? "" : " ") + value;
  if (!args.has(o.name)) return out;
  const std::string& file = line.files[args.word_of(o.name)];
  out.origin = file.empty() ? "command line" : "@" + file;
  return out;
}

std::vector<Setting> settings_of(const Args& args, const CommandLine& line) {
  std::vector<Setting> out;
  for (std::span<const Option> table : {args.tool().options, common_options()})
    for (const Option& o : table) {
      const bool only_answers = o.name.starts_with("help") || o.name == "version" || o.name == "completions";
      if (!only_answers && o.name != "print-config") out.push_back(setting_of(args, line, o));
    }
  for (std::string_view name : kEnvironment) {
    const char* value = std::getenv(std::string(name).c_str());
    out.push_back({std::string(name), value ? value : "", value ? "environment" : "not set"});
  }
  return out;
}

std::string padded(const std::string& s, size_t width) {
  return s + std::string(s.size() < width ? width - s.size() : 0, ' ');
}

}  // namespace

std::string config_text(const Args& args, const CommandLine& line) {
  const std::vector<Setting> settings = settings_of(args, line);
  size_t names = 0, values = 0;
  for (const Setting& s : settings) {
    names = std::max(names, s.name.size());
    values = std::max(values, std::min(s.value.size(), size_t{40}));
  }
  std::string out;
  for (const Setting& s : settings)
    out += padded(s.name, names) + "  " + padded(s.value, values) + "  " + s.origin + "\n";
  return out;
}

std::string config_json(const Args& args, const CommandLine& line) {
  JsonWriter json;
  json.begin_object().member("schema", "sg-config").member("version", 1);
  json.member("tool", args.tool().name).key("settings").begin_array();
  for (const Setting& s : settings_of(args, line)) {
    json.begin_object().member("name", s.name).member("value", s.value);
    json.member("origin", s.origin).end_object();
  }
  return json.end_array().end_object().take() + "\n";
}

}  // namespace sg::cli
