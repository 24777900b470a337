// What to say of a name that a recipe does not have: the nearest that it has, or else all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sg::recipe {

// "did you mean `a`?", else "ARE a, b, c", of many the first. Empty if there are no names.
std::string name_hint(std::string_view word, const std::vector<std::string>& names, std::string_view are);

}  // namespace sg::recipe
