#include "libgraph/base/json_read.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <vector>

#include "libgraph/base/chars.h"
#include "libgraph/base/json.h"

namespace sg {
namespace {

// Walks JSON text once. `skip` assumes well-formed text; find_json_fault checks that.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  size_t position() const { return at_; }
  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void advance() { at_ = std::min(at_ + 1, text_.size()); }

  std::string_view skip_string() {  // returns the raw text between the quotes
    size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_, text_.size());
    std::string_view raw = text_.substr(begin, at_ - begin);
    advance();
    return raw;
  }

  void skip_value() {
    size_t depth = 0;
    do {
      skip_space();
      char c = peek();
      if (c == '"') {
        skip_string();
      } else if (c == '[' || c == '{') {
        ++depth, advance();
      } else if (c == ']' || c == '}') {
        --depth, advance();
      } else if (c == ',' || c == ':') {
        advance();
      } else {
        while (at_ < text_.size() && !is_space(peek()) &&
               std::string_view(",:[]{}\"").find(peek()) == std::string_view::npos)
          ++at_;
      }
      if (depth != 0) continue;
      return;
    } while (at_ < text_.size());
  }

  // Moves from the start of a value to the start of one inside it.
  bool enter(const JsonPlace& step) {
    skip_space();
    if (peek() != (step.is_key ? '{' : '[')) return false;
    advance();
    for (size_t i = 0; at_ < text_.size(); ++i) {
      skip_space();
      if (step.is_key) {
        if (peek() != '"') return false;
        std::string_view raw = skip_string();
        skip_space();
        advance();  // the colon
        skip_space();
        if (raw == step.key) return true;
      } else if (i == step.index) {
        return true;
      }
      skip_value();
      skip_space();
      if (peek() != ',') return false;
      advance();
    }
    return false;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// A non-recursive JSON grammar checker: one character of stack per level.
class FaultFinder {
 public:
  explicit FaultFinder(std::string_view text) : text_(text) {}

  std::optional<JsonFault> run() {
    do {
      skip_space();
      if (!value()) return fault_;
      while (true) {  // after a value: close the container, or go on to its next item
        skip_space();
        if (stack_.empty()) return at_ == text_.size() ? std::nullopt : stop("the end of the file");
        char close = stack_.back();
        if (peek() == close) {
          stack_.pop_back(), ++at_;
          continue;
        }
        if (peek() != ',') return stop(close == ']' ? "`,` or `]`" : "`,` or `}`");
        ++at_;
        if (close == '}' && !key()) return fault_;
        break;
      }
    } while (true);
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }

  std::optional<JsonFault> stop(std::string_view expected) {
    at_ = std::min(at_, text_.size());
    fault_ = JsonFault{at_, at_ == text_.size() ? "the file ends where " + std::string(expected) + " is expected"
                                                : "expected " + std::string(expected)};
    return fault_;
  }
  bool fail(std::string_view expected) { return stop(expected), false; }

  // Reads a scalar, an empty container, or an opening bracket (at_ is then on its first item).
  bool value() {
    for (;;) {
      skip_space();
      char c = peek();
      if (c == '"') return string();
      if (c != '[' && c != '{') return scalar();
      ++at_, skip_space();
      char close = c == '[' ? ']' : '}';
      if (peek() == close) return ++at_, true;
      stack_.push_back(close);
      if (close == '}' && !key()) return false;
    }
  }

  bool key() {
    skip_space();
    if (peek() != '"') return fail("a key in quotes");
    if (!string()) return false;
    skip_space();
    if (peek() != ':') return fail("`:`");
    return ++at_, true;
  }

  bool string() {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) return fail("no control character inside a string");
      if (text_[at_] == '\\' &&
          std::string_view("\"\\/bfnrtu").find(text_[++at_ < text_.size() ? at_ : at_ - 1]) == std::string_view::npos)
        return fail("an escape: one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
    }
    if (at_ >= text_.size()) return fail("the end of a string");
    return ++at_, true;
  }

  bool scalar() {
    size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '-' || peek() == '+' || peek() == '.'))
      ++at_;
    std::string_view word = text_.substr(begin, at_ - begin);
    if (word == "true" || word == "false" || word == "null" || is_number(word)) return true;
    at_ = begin;
    return fail(word.empty() ? "a value" : "a value (a number that fits 64 bits, true, false, null, a string, [ or {)");
  }

  static bool is_number(std::string_view word) {
    double d = 0;
    if (word.empty() || (word[0] != '-' && !std::isdigit(static_cast<unsigned char>(word[0])))) return false;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), d);
    if (error != std::errc() || end != word.data() + word.size() || !std::isfinite(d)) return false;
    bool whole = word.find_first_of(".eE") == std::string_view::npos;
    return !whole || (d >= -9223372036854775808.0 && d < 18446744073709551616.0);
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<char> stack_;
  std::optional<JsonFault> fault_;
};

void write_canonical(simdjson::dom::element e, JsonWriter* out) {
  using simdjson::dom::element_type;
  switch (e.type()) {
    case element_type::ARRAY: {
      simdjson::dom::array items = e.get_array().value_unsafe();
      out->begin_array();
      for (auto item : items) write_canonical(item, out);
      out->end_array();
      break;
    }
    case element_type::OBJECT: {
      simdjson::dom::object object = e.get_object().value_unsafe();
      std::map<std::string_view, simdjson::dom::element> fields;
      for (auto field : object) fields[field.key] = field.value;
      out->begin_object();
      for (const auto& [key, value] : fields) {
        out->key(key);
        write_canonical(value, out);
      }
      out->end_object();
      break;
    }
    case element_type::STRING: out->string(e.get_string().value_unsafe()); break;
    case element_type::INT64: out->integer(e.get_int64().value_unsafe()); break;
    case element_type::UINT64: out->natural(e.get_uint64().value_unsafe()); break;
    case element_type::DOUBLE: out->floating(e.get_double().value_unsafe()); break;
    case element_type::BOOL: out->boolean(e.get_bool().value_unsafe()); break;
    case element_type::NULL_VALUE: out->null(); break;
  }
}

}  // namespace

std::string print_place(const JsonPlace* place, const JsonPlace* base) {
  if (place == base) return "the top level";
  std::vector<const JsonPlace*> steps;
  for (; place != base; place = place->parent) steps.push_back(place);
  std::string out;
  for (auto it = steps.rbegin(); it != steps.rend(); ++it) {
    if ((*it)->is_key) (out += out.empty() ? "" : ".") += (*it)->key;
    else out += "[" + std::to_string((*it)->index) + "]";
  }
  return out;
}

std::optional<uint64_t> offset_of(std::string_view json, const JsonPlace* place) {
  std::vector<const JsonPlace*> steps;
  for (; place != nullptr; place = place->parent) steps.push_back(place);
  Scanner scanner(json);
  scanner.skip_space();
  for (auto it = steps.rbegin(); it != steps.rend(); ++it)
    if (!scanner.enter(**it)) return std::nullopt;
  return scanner.position();
}

std::optional<JsonFault> find_json_fault(std::string_view json) { return FaultFinder(json).run(); }

std::string_view json_kind(simdjson::dom::element e) {
  using simdjson::dom::element_type;
  switch (e.type()) {
    case element_type::ARRAY: return "a list";
    case element_type::OBJECT: return "an object";
    case element_type::STRING: return "a string";
    case element_type::INT64: return "an integer";
    case element_type::UINT64: return "an integer beyond 64 bits with sign";
    case element_type::DOUBLE: return "a float";
    case element_type::BOOL: return "a boolean";
    case element_type::NULL_VALUE: return "null";
  }
  return "a value";
}

std::string canonical_json(simdjson::dom::element e) {
  JsonWriter writer;
  write_canonical(e, &writer);
  return writer.take();
}

}  // namespace sg
