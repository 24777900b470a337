#include "libgraph/base/json.h"

#include <cassert>
#include <charconv>
#include <cmath>

#include "libgraph/base/utf8.h"

namespace sg {
namespace {

void append_escaped(char c, std::string* out) {
  switch (c) {
    case '"': *out += "\\\""; return;
    case '\\': *out += "\\\\"; return;
    case '\n': *out += "\\n"; return;
    case '\r': *out += "\\r"; return;
    case '\t': *out += "\\t"; return;
    case '\b': *out += "\\b"; return;
    case '\f': *out += "\\f"; return;
    default: append_u_escape(static_cast<unsigned char>(c), out);
  }
}

void append_string(std::string_view s, std::string* out) {
  *out += '"';
  while (!s.empty()) {
    unsigned char c = static_cast<unsigned char>(s[0]);
    size_t length = utf8_length(s);
    if (length == 0) {
      *out += "\xEF\xBF\xBD";
      length = 1;
    } else if (c < 0x20 || c == '"' || c == '\\' || c == 0x7F) {
      append_escaped(s[0], out);
    } else if (const auto hidden = length > 1 ? hidden_character(s) : std::nullopt) {
      append_u_escape(*hidden, out);
    } else {
      out->append(s.substr(0, length));
    }
    s.remove_prefix(length);
  }
  *out += '"';
}

}  // namespace

std::string json_string(std::string_view s) {
  std::string out;
  append_string(s, &out);
  return out;
}

std::string json_float(double v) {
  if (std::isnan(v)) return "\"nan\"";
  if (std::isinf(v)) return v < 0 ? "\"-inf\"" : "\"inf\"";
  char buffer[32];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, v);
  assert(error == std::errc());
  (void)error;
  std::string out(buffer, end);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

JsonWriter& JsonWriter::begin_object() { return begin('{', true), *this; }
JsonWriter& JsonWriter::end_object() { return end('}', true), *this; }
JsonWriter& JsonWriter::begin_array() { return begin('[', false), *this; }
JsonWriter& JsonWriter::end_array() { return end(']', false), *this; }

JsonWriter& JsonWriter::key(std::string_view name) {
  assert(!levels_.empty() && levels_.back().is_object && !after_key_);
  if (!levels_.back().empty) text_ += ',';
  levels_.back().empty = false;
  new_line();
  append_string(name, &text_);
  text_ += style_ == Style::pretty ? ": " : ":";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view s) {
  before_value();
  append_string(s, &text_);
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t v) { return raw(std::to_string(v)); }
JsonWriter& JsonWriter::natural(uint64_t v) { return raw(std::to_string(v)); }
JsonWriter& JsonWriter::floating(double v) { return raw(json_float(v)); }
JsonWriter& JsonWriter::boolean(bool v) { return raw(v ? "true" : "false"); }
JsonWriter& JsonWriter::null() { return raw("null"); }

JsonWriter& JsonWriter::count(double v) {
  bool whole = std::fabs(v) < 9223372036854775808.0 && std::trunc(v) == v;
  return whole ? integer(static_cast<int64_t>(v)) : floating(v);
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  before_value();
  text_ += json;
  return *this;
}

void JsonWriter::before_value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (levels_.empty()) return;
  assert(!levels_.back().is_object);
  if (!levels_.back().empty) text_ += ',';
  levels_.back().empty = false;
  new_line();
}

void JsonWriter::begin(char open, bool is_object) {
  before_value();
  text_ += open;
  levels_.push_back({is_object});
}

void JsonWriter::end(char close, bool is_object) {
  assert(!levels_.empty() && levels_.back().is_object == is_object && !after_key_);
  (void)is_object;
  bool empty = levels_.back().empty;
  levels_.pop_back();
  if (!empty) new_line();
  text_ += close;
}

void JsonWriter::new_line() {
  if (style_ == Style::compact) return;
  text_ += '\n';
  text_.append(2 * levels_.size(), ' ');
}

}  // namespace sg
