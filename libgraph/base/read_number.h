// A whole text as a number: no spaces, no sign `+`, nothing behind it.
#pragma once

#include <charconv>
#include <string_view>
#include <system_error>

namespace sg {

template <class Number>
bool read_number(std::string_view text, Number* out) {
  const char* text_end = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), text_end, *out);
  return error == std::errc() && end == text_end;
}

}  // namespace sg
