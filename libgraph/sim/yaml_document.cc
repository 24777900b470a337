#include "libgraph/sim/yaml_document.h"

#include <yaml-cpp/yaml.h>

namespace sg {

YAML::Node only_document(const std::string& text) {
  const std::vector<YAML::Node> documents = YAML::LoadAll(text);
  for (size_t i = 1; i < documents.size(); ++i)
    if (!documents[i].IsNull())  // what ends with `---` has an empty one more
      throw YAML::ParserException(documents[i].Mark(), "a second document begins here, and a file holds one");
  return documents.empty() ? YAML::Node() : documents[0];
}

}  // namespace sg
