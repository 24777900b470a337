#include "libgraph/utf8.h"

#include <simdjson.h>

namespace sg {

size_t utf8_length(std::string_view s) {
  if (s.empty()) return 0;
  unsigned char lead = static_cast<unsigned char>(s[0]);
  size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return length == 1 || (length <= s.size() && is_utf8(s.substr(0, length))) ? length : 0;
}

bool is_utf8(std::string_view s) { return simdjson::validate_utf8(s.data(), s.size()); }

}  // namespace sg
