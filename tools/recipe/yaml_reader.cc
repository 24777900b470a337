#include "tools/recipe/yaml_reader.h"

#include <algorithm>
#include <set>

#include "libgraph/base/nearest.h"
#include "libgraph/base/yaml_quotes.h"

namespace sg::recipe {

Location YamlReader::place(const YAML::Node& node) const {
  YAML::Mark mark = node.Mark();
  return {file_, static_cast<uint32_t>(mark.line + 1), static_cast<uint32_t>(mark.column + 1), {}, {}};
}

void YamlReader::error(const YAML::Node& at, const std::string& message, const std::string& hint) {
  error(place(at), message, hint);
}

void YamlReader::error(const Location& at, const std::string& message, const std::string& hint) {
  problems_->error("recipe", message, at, hint);
}

Word YamlReader::word(const YAML::Node& node, std::string_view what) {
  if (node.IsScalar()) {
    if (has_open_quotes(text_, static_cast<size_t>(node.Mark().pos))) error(node, std::string(kOpenQuotes));
    return {node.Scalar(), place(node)};
  }
  error(node, std::string(what) + " is one word or text");
  return {"", place(node), true};
}

std::vector<Word> YamlReader::words(const YAML::Node& node, std::string_view what) {
  std::vector<Word> out;
  if (!node.IsSequence()) return {word(node, what)};
  for (const YAML::Node& item : node) out.push_back(word(item, "an item of " + std::string(what)));
  return out;
}

void YamlReader::each(const YAML::Node& map, std::string_view what,
                      const std::function<void(const Word&, const YAML::Node&)>& fn) {
  if (map.IsNull()) return;
  if (!map.IsMap()) return error(map, std::string(what) + " is a map of names and values");
  constexpr size_t kMostEntries = 10'000;
  if (map.size() > kMostEntries) return error(map, std::string(what) + " has more than 10,000 entries");
  std::set<std::string> seen;
  for (const auto& entry : map) {
    Word key = word(entry.first, "a key of " + std::string(what));
    if (key.empty()) continue;
    if (!seen.insert(key.text).second) {
      error(key.where, "`" + key.text + "` is given twice");
      continue;
    }
    fn(key, entry.second);
  }
}

std::vector<Setting> YamlReader::settings(const YAML::Node& map, std::string_view what,
                                          std::span<const std::string_view> left_out) {
  std::vector<Setting> out;
  each(map, what, [&](const Word& key, const YAML::Node& value) {
    if (std::ranges::count(left_out, key.text) != 0) return;
    Setting s{key, {}, Setting::Flag::none};
    if (value.IsNull() || (value.IsScalar() && value.Scalar() == "true" && value.Tag() != "!")) {
      s.flag = Setting::Flag::yes;
    } else if (value.IsScalar() && value.Scalar() == "false" && value.Tag() != "!") {
      s.flag = Setting::Flag::no;
    } else {
      s.values = words(value, "`" + key.text + "`");
    }
    out.push_back(std::move(s));
  });
  return out;
}

std::string YamlReader::known_key(const Word& key, std::string_view what, std::span<const std::string_view> known) {
  if (std::ranges::count(known, key.text) != 0) return key.text;
  Nearest meant(key.text);
  for (const std::string_view k : known) meant.offer(k);
  error(key.where, std::string(what) + " has no `" + key.text + "`", meant.hint());
  return std::string(meant.best());
}

}  // namespace sg::recipe
