// Is a text valid UTF-8?
#pragma once

#include <string_view>

namespace sg {

bool is_utf8(std::string_view s);

}  // namespace sg
