// YAML nodes with their places, and the complaints about them. Internal to the readers of recipes.
#pragma once

#include <yaml-cpp/yaml.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "tools/recipe/recipe.h"

namespace sg::recipe {

class YamlReader {
 public:
  // `text`: of the file, as yaml-cpp was given it; outlives the reader.
  YamlReader(std::string file, std::string_view text, Diagnostics* problems)
      : file_(std::move(file)), text_(text), problems_(problems) {}

  const std::string& file() const { return file_; }
  Location place(const YAML::Node& node) const;
  void error(const YAML::Node& at, const std::string& message, const std::string& hint = {});
  void error(const Location& at, const std::string& message, const std::string& hint = {});

  Word word(const YAML::Node& node, std::string_view what);                // a scalar; says so when it is none
  std::vector<Word> words(const YAML::Node& node, std::string_view what);  // a scalar or a list of them
  // Calls fn(key, value) for each entry of a map whose keys are distinct words.
  void each(const YAML::Node& map, std::string_view what,
            const std::function<void(const Word&, const YAML::Node&)>& fn);
  std::vector<Setting> settings(const YAML::Node& map, std::string_view what,
                                std::span<const std::string_view> left_out = {});
  // The known key that is written, or after the complaint the one that is meant; empty = none is near.
  std::string known_key(const Word& key, std::string_view what, std::span<const std::string_view> known);

 private:
  std::string file_;
  std::string_view text_;
  Diagnostics* problems_;
};

}  // namespace sg::recipe
