#include "libgraph/text/text_words.h"

#include <charconv>
#include <cmath>

#include "libgraph/base/utf8.h"
#include "libgraph/dtype.h"

namespace sg::text {

bool is_argument_word(std::string_view w) {
  static constexpr std::string_view kWords[] = {"none",          "true", "false", "inf",   "nan",    "slice",
                                                "complex",       "expr", "dtype", "graph", "device", "layout",
                                                "memory_format", "enum", "op",    "opaque"};
  for (std::string_view k : kWords)
    if (k == w) return true;
  return parse_dtype(w).has_value();
}

bool is_metadata_word(std::string_view w) {
  static constexpr std::string_view kWords[] = {
      "of",      "label",  "recompute", "recompute_region", "ep",       "chunk",      "chunks", "collective",
      "unshard", "reduce", "remat_of",  "copy_of",          "chunk_of", "offload_of", "stream", "also",
      "binds",   "extra",  "shard",     "attribute",        "data"};
  for (std::string_view k : kWords)
    if (k == w) return true;
  return false;
}

bool is_plain_placement(std::string_view s) {
  size_t open = s.find('(');
  if (open == std::string_view::npos) return is_plain<is_word_char>(s);
  if (!is_plain<is_word_char>(s.substr(0, open)) || !s.ends_with(')')) return false;
  for (char c : s.substr(open + 1, s.size() - open - 2))
    if (!is_word_char(c) && c != ',' && c != ' ' && c != '-' && c != '=') return false;
  return true;
}

bool gets_default_overload(std::string_view op) {
  size_t dot = op.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot + 1 == op.size()) return false;
  if (op.find('.', dot + 1) != std::string_view::npos) return false;
  std::string_view space = op.substr(0, dot);
  return space != "python" && space != "higher_order" && space != "sg";
}

void append_quoted(std::string_view s, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  *out += '"';
  for (size_t i = 0; i < s.size();) {
    unsigned char c = static_cast<unsigned char>(s[i]);
    if (c == '"' || c == '\\') {
      *out += '\\', *out += s[i++];
    } else if (c == '\n' || c == '\t' || c == '\r') {
      *out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
      ++i;
    } else if (c < 0x20 || c == 0x7F) {
      append_u_escape(c, out);
      ++i;
    } else if (c < 0x80) {
      *out += s[i++];
    } else if (const auto hidden = hidden_character(s.substr(i))) {
      append_u_escape(*hidden, out);
      i += utf8_length(s.substr(i));
    } else if (size_t n = utf8_length(s.substr(i))) {
      out->append(s, i, n);
      i += n;
    } else {
      *out += "\\x", *out += kHex[c >> 4], *out += kHex[c & 15];
      ++i;
    }
  }
  *out += '"';
}

namespace {

// Copies JSON token by token; recursion only into containers, with bounded depth.
class JsonCopy {
 public:
  JsonCopy(std::string_view text, std::string* out) : text_(text), out_(out) {}
  size_t position() const { return at_; }

  bool value(int depth) {
    skip();
    if (at_ >= text_.size() || depth > kMaxDepth) return false;
    char c = text_[at_];
    if (c == '{' || c == '[') return container(c == '{', depth);
    if (c == '"') return string();
    if (c == '-' || is_digit(c)) return number();
    for (std::string_view word : {"true", "false", "null"})
      if (text_.substr(at_).starts_with(word)) return copy(word.size());
    return false;
  }

 private:
  bool container(bool is_object, int depth) {
    char close = is_object ? '}' : ']';
    copy(1);
    skip();
    if (next_is(close)) return copy(1);
    for (;;) {
      skip();
      if (is_object) {
        if (!next_is('"') || !string()) return false;
        skip();
        if (!next_is(':')) return false;
        copy(1);
      }
      if (!value(depth + 1)) return false;
      skip();
      if (next_is(close)) return copy(1);
      if (!next_is(',')) return false;
      copy(1);
    }
  }

  bool string() {
    size_t begin = at_++;
    while (at_ < text_.size() && text_[at_] != '"') {
      unsigned char c = static_cast<unsigned char>(text_[at_]);
      size_t n = c == '\\' ? escape() : c < 0x20 ? 0 : utf8_length(text_.substr(at_));
      if (n == 0) return false;
      at_ += n;
    }
    if (at_ >= text_.size()) return false;
    ++at_;
    out_->append(text_, begin, at_ - begin);
    return true;
  }

  size_t escape() const {
    if (at_ + 1 >= text_.size()) return 0;
    char c = text_[at_ + 1];
    if (c != 'u') return std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos ? 0 : 2;
    if (at_ + 6 > text_.size()) return 0;
    for (size_t i = at_ + 2; i < at_ + 6; ++i)
      if (std::string_view("0123456789abcdefABCDEF").find(text_[i]) == std::string_view::npos) return 0;
    return 6;
  }

  bool number() {
    size_t i = at_;
    auto digits = [&] {
      size_t begin = i;
      while (i < text_.size() && is_digit(text_[i])) ++i;
      return i > begin;
    };
    if (text_[i] == '-') ++i;
    size_t first = i;
    if (!digits() || (text_[first] == '0' && i > first + 1)) return false;
    if (i < text_.size() && text_[i] == '.' && (++i, !digits())) return false;
    if (i < text_.size() && (text_[i] == 'e' || text_[i] == 'E')) {
      ++i;
      if (i < text_.size() && (text_[i] == '+' || text_[i] == '-')) ++i;
      if (!digits()) return false;
    }
    return copy(i - at_);
  }

  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool next_is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool copy(size_t n) {
    out_->append(text_, at_, n);
    at_ += n;
    return true;
  }

  std::string_view text_;
  std::string* out_;
  size_t at_ = 0;
};

}  // namespace

size_t append_json(std::string_view text, std::string* out, size_t* bad) {
  JsonCopy copy(text, out);
  bool ok = copy.value(0);
  if (!ok) *bad = copy.position();
  return ok ? copy.position() : 0;
}

bool is_compact_json(std::string_view text) {
  std::string copy;
  size_t bad;
  return append_json(text, &copy, &bad) == text.size() && copy == text;
}

void append_float(double v, std::string* out) {
  char digits[64];
  if (std::isnan(v)) {
    *out += "nan";
    return;
  }
  if (std::isinf(v)) {
    *out += v < 0 ? "-inf" : "inf";
    return;
  }
  auto end = std::to_chars(digits, digits + sizeof digits, v).ptr;
  std::string_view text(digits, static_cast<size_t>(end - digits));
  *out += text;
  if (text.find_first_of(".e") == std::string_view::npos) *out += ".0";
}

}  // namespace sg::text
