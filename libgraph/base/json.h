// JsonWriter: JSON text, one call a token. The only place where JSON is spelled.
//
// Canonical  The compact form is the one spelling of a value that the project writes: no white space, keys in the order
//            in which they are written (callers sort where the order means nothing), integers in full, floats in the
//            fewest digits that read back to the same bits and always recognisable as floats (`1.0`, `1e+30`).
// Strings    Control characters, `"` and `\` are escaped, valid UTF-8 stays as it is, and a byte that is not UTF-8
//            becomes U+FFFD, so that the output is valid JSON whatever a name holds.
// Not JSON   NaN and the infinities are written as the strings "nan", "inf" and "-inf".
// Misuse     (a key outside an object, an end without its begin) is a bug of ours: it asserts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace sg {

class JsonWriter {
 public:
  enum class Style : uint8_t { compact, pretty };  // pretty: two spaces a level, `"key": value`

  explicit JsonWriter(Style style = Style::compact) : style_(style) {}

  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);  // then exactly one value

  JsonWriter& string(std::string_view s);
  JsonWriter& integer(int64_t v);
  JsonWriter& natural(uint64_t v);
  JsonWriter& floating(double v);
  JsonWriter& count(double v);  // a whole number held in a double: in full while below 2^63
  JsonWriter& boolean(bool v);
  JsonWriter& null();

  // A key and its value, by the type of the value: text, a bool, a whole number or a float.
  template <class T>
  JsonWriter& member(std::string_view name, const T& value) {
    key(name);
    if constexpr (std::is_same_v<T, bool>) return boolean(value);
    else if constexpr (std::is_floating_point_v<T>) return floating(value);
    else if constexpr (std::is_unsigned_v<T>) return natural(value);
    else if constexpr (std::is_integral_v<T>) return integer(value);
    else return string(value);
  }
  JsonWriter& raw(std::string_view json);  // a value that is JSON already, copied as it is

  // The text so far; complete when every begin has its end. No newline at the end.
  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }

 private:
  struct Level {
    bool is_object;
    bool empty = true;
  };
  void before_value();
  void begin(char open, bool is_object);
  void end(char close, bool is_object);
  void new_line();

  Style style_;
  std::string text_;
  std::vector<Level> levels_;
  bool after_key_ = false;
};

// One string with its quotes, and one float, as JsonWriter spells them.
std::string json_string(std::string_view s);
std::string json_float(double v);

}  // namespace sg
