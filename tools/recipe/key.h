// The key of a step: what its result depends on, and nothing else.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/recipe/plan.h"

namespace sg::recipe {

// What went into a key, by name ("tool", "version", "options", "input"), so that a change can be told.
struct Key {
  std::map<std::string, std::string> parts;
  std::string digest;        // hex SHA-256 of the parts
  std::string text() const;  // a line a part; parts_of gives them back
};
std::map<std::string, std::string> parts_of(const std::string& text);

// `input`: digest of the graph that the step reads; empty for imports. Fails when a file cannot be read.
Result<Key> key_of(const Step& step, const std::string& input);
Result<Key> key_of_check(const RunCheck& check, const std::string& graph, const std::string& reference);

// "the options were `--policy default`, now `--policy full`"; empty when nothing changed.
std::string what_changed(const std::map<std::string, std::string>& before, const Key& now);

// Of the program that makes a result: the version, and its bytes, so that a changed tool makes new results.
Result<std::string> version_of(const std::string& program);

}  // namespace sg::recipe
