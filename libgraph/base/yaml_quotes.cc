#include "libgraph/base/yaml_quotes.h"

namespace sg {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF", kSpace = " \t\r\n";

// Tags and anchors come before the text: `!!str &name "text"`.
size_t behind_properties(std::string_view yaml, size_t at) {
  while (at < yaml.size() && (yaml[at] == '!' || yaml[at] == '&'))
    at = yaml.find_first_not_of(kSpace, yaml.find_first_of(kSpace, at));
  return at;
}

}  // namespace

bool has_open_quotes(std::string_view yaml, size_t at) {
  if (yaml.starts_with(kByteOrderMark)) yaml.remove_prefix(kByteOrderMark.size());
  at = behind_properties(yaml, at);
  if (at >= yaml.size() || (yaml[at] != '"' && yaml[at] != '\'')) return false;
  const char quote = yaml[at];
  for (size_t i = at + 1; i < yaml.size(); ++i) {
    const bool is_doubled = quote == '\'' && yaml.substr(i, 2) == "''";  // '' stands for one quote
    const bool is_escape = quote == '"' && yaml[i] == '\\';
    if (is_doubled || is_escape) ++i;
    else if (yaml[i] == quote) return false;
  }
  return true;
}

}  // namespace sg
