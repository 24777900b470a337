#include "libgraph/text/text_lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "libgraph/base/utf8.h"

namespace sg::text {
namespace {

std::string quote(std::string_view s) { return "`" + std::string(s) + "`"; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The number in `count` hex digits; -1 = too few digits.
int64_t hex_number(const char* at, const char* end, int count) {
  if (end - at < count) return -1;
  int64_t value = 0;
  for (int i = 0; i < count; ++i) {
    int digit = hex_digit(at[i]);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace

TextLexer::TextLexer(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {
  if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
  cursor_ = end_ = next_ = text_.data();
}

// --- lines ---

bool TextLexer::next_line() {
  const char* text_end = text_.data() + text_.size();
  while (next_ < text_end) {
    cursor_ = next_;
    const char* line_break = static_cast<const char*>(std::memchr(next_, '\n', static_cast<size_t>(text_end - next_)));
    end_ = line_break ? line_break : text_end;
    next_ = line_break ? line_break + 1 : text_end;
    if (end_ > cursor_ && end_[-1] == '\r') --end_;
    ++line_;
    if (!at_end()) return true;
  }
  return false;
}

bool TextLexer::at_end() {
  skip_blanks();
  return cursor_ == end_ || *cursor_ == '#';
}

bool TextLexer::expect_end() { return at_end() || expected("the end of the line"); }

// --- characters and words ---

char TextLexer::peek() { return at_end() ? '\0' : *cursor_; }

bool TextLexer::next_is(std::string_view s) {
  skip_blanks();
  return static_cast<size_t>(end_ - cursor_) >= s.size() && std::memcmp(cursor_, s.data(), s.size()) == 0;
}

bool TextLexer::take(char c) {
  skip_blanks();
  if (cursor_ == end_ || *cursor_ != c) return false;
  ++cursor_;
  return true;
}

bool TextLexer::expect(char c, std::string_view where) {
  return take(c) || expected(quote({&c, 1}) + " " + std::string(where));
}

std::string_view TextLexer::peek_word() {
  const char* before = cursor_;
  std::string_view w = word();
  cursor_ = before;
  return w;
}

// --- literals ---

bool TextLexer::string(std::string_view* out) {
  if (peek() != '"') return expected("a string in double quotes");
  const char* begin = ++cursor_;
  while (cursor_ < end_ && *cursor_ != '"' && *cursor_ != '\\') ++cursor_;
  if (cursor_ < end_ && *cursor_ == '"') {  // nothing escaped: a view into the text
    *out = {begin, static_cast<size_t>(cursor_++ - begin)};
    return true;
  }
  unescaped_.assign(begin, cursor_);
  const char* at = cursor_;
  while (at < end_ && *at != '"') {
    if (*at != '\\') unescaped_ += *at++;
    else if (!escape(&at, &unescaped_)) return false;
  }
  if (at == end_) {
    return error_at(begin - 1, "parse-string", "this string is not closed",
                    "close it with `\"` in the same line; write a line break inside as `\\n`");
  }
  cursor_ = at + 1;
  *out = unescaped_;
  return true;
}

bool TextLexer::string_ahead(std::string_view* out) {
  const char* before = cursor_;
  size_t errors = errors_.size();
  if (string(out)) return true;
  errors_.resize(errors);
  cursor_ = before;
  return false;
}

bool TextLexer::escape(const char** at, std::string* out) {
  const char* begin = *at;
  static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
  char c = end_ - begin < 2 ? '\0' : begin[1];
  if (size_t i = kFrom.find(c); c != '\0' && i != std::string_view::npos) {
    *out += kTo[i], *at += 2;
    return true;
  }
  if (int64_t byte = hex_number(begin + 2, end_, 2); c == 'x' && byte >= 0) {
    *out += static_cast<char>(byte), *at += 4;
    return true;
  }
  if (int64_t code = hex_number(begin + 2, end_, 4); c == 'u' && code >= 0) {
    *at += 6;
    if (code >= 0xD800 && code < 0xDC00 && end_ - *at >= 2 && (*at)[0] == '\\' && (*at)[1] == 'u') {
      int64_t low = hex_number(*at + 2, end_, 4);
      if (low >= 0xDC00 && low < 0xE000) code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), *at += 6;
    }
    if (code < 0xD800 || code >= 0xE000) {
      append_utf8(static_cast<uint32_t>(code), out);
      return true;
    }
    return error_at(begin, "parse-string", "half of a surrogate pair",
                    "write the character itself, or both halves as `\\uD8xx\\uDCxx`");
  }
  return error_at(begin, "parse-string", "this escape means nothing",
                  "escapes are \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX, and \\xNN for a byte");
}

bool TextLexer::integer(std::string_view what, int64_t* out) {
  skip_blanks();
  auto [end, failure] = std::from_chars(cursor_, end_, *out);
  if (failure == std::errc::result_out_of_range)
    return error("parse-number", "this number does not fit in 64 bits", "the range is -2^63 to 2^63 - 1");
  if (failure != std::errc()) return expected(what);
  cursor_ = end;
  return true;
}

bool TextLexer::natural(std::string_view what, uint32_t* out) {
  skip_blanks();
  const char* begin = cursor_;
  int64_t value;
  if (!integer(what, &value)) return false;
  if (value < 0 || value >= 0xFFFFFFFFll)
    return error_at(begin, "parse-number", std::string(what) + " is between 0 and 4294967294");
  *out = static_cast<uint32_t>(value);
  return true;
}

bool TextLexer::number_is_float() {
  skip_blanks();
  const char* at = cursor_;
  if (at < end_ && *at == '-') ++at;
  if (at < end_ && is_letter(*at)) return true;
  while (at < end_ && is_digit(*at)) ++at;
  if (at == end_) return false;
  if (*at == '.') return at + 1 == end_ || at[1] != '.';  // `0..3` is a range of ranks
  return *at == 'e' || *at == 'E';
}

bool TextLexer::floating(double* out) {
  skip_blanks();
  const char* begin = cursor_;
  if (next_is("nan")) {
    cursor_ += 3;
    *out = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  bool negative = take('-');
  if (next_is("inf")) {
    cursor_ += 3;
    *out = negative ? -HUGE_VAL : HUGE_VAL;
    return true;
  }
  cursor_ = begin;
  if (cursor_ == end_ || !(is_digit(*cursor_) || *cursor_ == '-' || *cursor_ == '.')) return expected("a float");
  auto [end, failure] = std::from_chars(cursor_, end_, *out);
  if (failure == std::errc::result_out_of_range)
    return error("parse-number", "this float is out of the range of 64 bits", "write `inf` for infinity, 0.0 for zero");
  if (failure != std::errc()) return expected("a float");
  cursor_ = end;
  return true;
}

bool TextLexer::json(std::string* out) {
  skip_blanks();
  size_t bad = 0;
  std::string_view rest(cursor_, static_cast<size_t>(end_ - cursor_));
  size_t length = append_json(rest, out, &bad);
  if (length == 0)
    return error_at(cursor_ + bad, "parse-json", "this is not JSON",
                    "a JSON value in one line: 1, \"text\", [1, 2], {\"key\": true}");
  cursor_ += length;
  return true;
}

// --- expressions: operands and operators alternate, so the end is found without knowing what follows ---

bool TextLexer::balanced(const char** at) {
  int depth = 0;
  for (const char* p = *at; p < end_ && *p != '#' && *p != '"'; ++p) {
    if (*p == '(') ++depth;
    if (*p == ')' && --depth == 0) {
      *at = p + 1;
      return true;
    }
  }
  return error_at(*at, "parse-expression", "this `(` has no `)`");
}

bool TextLexer::operand(const char** at) {
  const char* p = *at;
  auto skip = [&] {
    while (p < end_ && (*p == ' ' || *p == '\t')) ++p;
  };
  skip();
  while (p < end_ && (*p == '-' || *p == '+')) ++p, skip();
  const char* begin = p;
  while (p < end_ && (is_letter(*p) || is_digit(*p))) ++p;
  if (p < end_ && *p == '(' && (p == begin || is_letter(*begin))) {
    if (!balanced(&p)) return false;
  } else if (p == begin) {
    cursor_ = p;
    return expected("a number, a symbol or `(`");
  }
  *at = p;
  return true;
}

bool TextLexer::expression(std::string_view* out) {
  skip_blanks();
  const char* begin = cursor_;
  const char* at = cursor_;
  for (;;) {
    if (!operand(&at)) return false;
    const char* p = at;
    while (p < end_ && (*p == ' ' || *p == '\t')) ++p;
    if (p == end_ || std::strchr("+-*/%", *p) == nullptr || *p == '\0') break;
    if ((*p == '*' || *p == '/') && p + 1 < end_ && p[1] == *p) ++p;
    at = p + 1;
  }
  cursor_ = at;
  *out = {begin, static_cast<size_t>(at - begin)};
  return true;
}

// --- errors ---

Diagnostic TextLexer::diagnostic(Severity severity, uint32_t line, const char* at, std::string_view rule,
                                 std::string message, std::string hint) const {
  const char* text_end = text_.data() + text_.size();
  const char* begin = at;
  while (begin > text_.data() && begin[-1] != '\n') --begin;
  const char* end = at;
  while (end < text_end && *end != '\n' && end - begin < static_cast<ptrdiff_t>(kLongestLine)) ++end;
  if (end > begin && end[-1] == '\r') --end;
  Diagnostic d{severity, std::string(rule), std::move(message), {}, std::move(hint), {}};
  d.where.file = file_;
  d.where.line = line;
  d.where.column = static_cast<uint32_t>(at - begin) + 1;
  if (at - begin < static_cast<ptrdiff_t>(kLongestLine)) d.source_line.assign(begin, end);
  return d;
}

bool TextLexer::error_on(uint32_t line, const char* at, std::string_view rule, std::string message, std::string hint) {
  if (!gave_up()) errors_.push_back(diagnostic(Severity::error, line, at, rule, std::move(message), std::move(hint)));
  return false;
}

bool TextLexer::error_at(const char* at, std::string_view rule, std::string message, std::string hint) {
  return error_on(line_, at, rule, std::move(message), std::move(hint));
}

bool TextLexer::error(std::string_view rule, std::string message, std::string hint) {
  skip_blanks();
  return error_at(cursor_, rule, std::move(message), std::move(hint));
}

void TextLexer::warning_at(const char* at, std::string_view rule, std::string message, std::string hint) {
  if (warnings_.size() < kMaxErrors)
    warnings_.push_back(diagnostic(Severity::warning, line_, at, rule, std::move(message), std::move(hint)));
}

std::string TextLexer::found() {
  if (at_end()) return "the end of the line";
  if (*cursor_ == '"') return "a string";
  std::string_view w = peek_word();
  if (!w.empty()) return quote(w.substr(0, 40));
  unsigned char c = static_cast<unsigned char>(*cursor_);
  if (c > 0x20 && c < 0x7F) return quote({cursor_, 1});
  size_t n = c < 0x80 ? 0 : utf8_length({cursor_, static_cast<size_t>(end_ - cursor_)});
  if (n > 1) return quote({cursor_, n});
  char byte[8];
  auto end = std::to_chars(byte, byte + 8, static_cast<unsigned>(c), 16).ptr;
  return "byte 0x" + std::string(byte, end);
}

bool TextLexer::expected(std::string_view what, std::string hint) {
  std::string message = "expected " + std::string(what) + ", found " + found();
  return error("parse", std::move(message), std::move(hint));
}

void TextLexer::report(Diagnostics* diagnostics) {
  std::vector<Diagnostic> all = std::move(errors_);
  for (Diagnostic& w : warnings_) all.push_back(std::move(w));
  std::stable_sort(all.begin(), all.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return a.where.line != b.where.line ? a.where.line < b.where.line : a.where.column < b.where.column;
  });
  for (Diagnostic& d : all) diagnostics->add(std::move(d));
}

}  // namespace sg::text
