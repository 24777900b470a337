// yaml-cpp reads the first document of a text and is silent about others.
#pragma once

#include <string>

namespace YAML {
class Node;
}

namespace sg {

// The one document of a text. Throws YAML::Exception where the text is not YAML, or another document begins.
YAML::Node only_document(const std::string& text);

// What helps with a mistake in a line of a text; empty: nothing that is known.
std::string yaml_hint(const std::string& text, size_t line);

}  // namespace sg
