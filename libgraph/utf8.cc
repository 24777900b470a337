#include "libgraph/utf8.h"

#include <simdjson.h>

namespace sg {

bool is_utf8(std::string_view s) { return simdjson::validate_utf8(s.data(), s.size()); }

}  // namespace sg
