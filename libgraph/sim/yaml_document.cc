#include "libgraph/sim/yaml_document.h"

#include <yaml-cpp/yaml.h>

#include <sstream>

namespace sg {

YAML::Node only_document(const std::string& text) {
  const std::vector<YAML::Node> documents = YAML::LoadAll(text);
  for (size_t i = 1; i < documents.size(); ++i)
    if (!documents[i].IsNull())  // what ends with `---` has an empty one more
      throw YAML::ParserException(documents[i].Mark(), "a second document begins here, and a file holds one");
  return documents.empty() ? YAML::Node() : documents[0];
}

std::string yaml_hint(const std::string& text, size_t line) {
  std::istringstream lines(text);
  std::string it;
  for (size_t i = 0; i <= line; ++i) std::getline(lines, it);
  const size_t first = it.find_first_not_of(' ');
  const bool has_tab = first != std::string::npos && it[first] == '\t';
  return has_tab ? "YAML takes no tabs at the beginning of a line: use spaces" : "";
}

}  // namespace sg
