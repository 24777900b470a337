#include "tools/recipe/name_hint.h"

#include <algorithm>

#include "libgraph/base/joined.h"
#include "libgraph/base/nearest.h"

namespace sg::recipe {

std::string name_hint(std::string_view word, const std::vector<std::string>& names, std::string_view are) {
  constexpr size_t kMost = 20;
  const std::string near = nearest_hint(word, names);
  if (!near.empty() || names.empty()) return near;
  return std::string(are) + " " + joined(first_of(names, kMost), ", ") + (names.size() > kMost ? ", ..." : "");
}

}  // namespace sg::recipe
