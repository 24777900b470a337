#include "libgraph/import/fx_lexer.h"

#include <algorithm>

#include "libgraph/base/chars.h"
#include "libgraph/base/utf8.h"

namespace sg {
namespace {

bool begins_name(char c) { return is_letter(c) || (c & 0x80) != 0; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

constexpr std::string_view kSigns[] = {"**=", "//=", "<<=", ">>=", "...", "->", "==", "!=", "<=", ">=", "+=", "-=",
                                       "*=",  "/=",  "%=",  "&=",  "|=",  "^=", "@=", "**", "//", "<<", ">>"};

constexpr size_t kMaxPrefix = 512;  // of a log line

}  // namespace

// --- places ---

Location FxText::where(size_t offset) const {
  offset = std::min(offset, whole.size());
  std::string_view before = whole.substr(0, offset);
  size_t line_begin = before.rfind('\n');
  line_begin = line_begin == std::string_view::npos ? 0 : line_begin + 1;
  Location at;
  at.file = file;
  at.line = static_cast<uint32_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  at.column = static_cast<uint32_t>(offset - line_begin) + 1;
  return at;
}

Error FxText::error(size_t offset, std::string message, std::string hint) const {
  return {ErrorKind::unreadable, std::move(message), where(offset), std::move(hint)};
}

std::string FxText::line_of(size_t offset) const {
  offset = std::min(offset, whole.size());
  size_t first = whole.substr(0, offset).rfind('\n');
  first = first == std::string_view::npos ? 0 : first + 1;
  return std::string(whole.substr(first, std::min<size_t>(whole.find('\n', first), whole.size()) - first));
}

// --- lines ---

FxLexer::FxLexer(const FxText& text) : text_(text), cursor_(text.begin) {}

std::string_view FxLexer::rest_of_line() const {
  size_t end = std::min(text_.whole.find('\n', cursor_), text_.end);
  return text_.whole.substr(cursor_, end - cursor_);
}

void FxLexer::skip_line() { cursor_ = std::min(text_.whole.find('\n', cursor_), text_.end); }

bool FxLexer::next_line() {
  open_brackets_ = 0;
  bool is_first = !has_begun_;
  has_begun_ = true;
  if (!is_first) skip_line();
  for (; cursor_ < text_.end; is_first = false) {
    if (!is_first) ++cursor_;  // past the end of the previous line
    begin_line();
    if (!at_new_line(cursor_)) return true;
  }
  return false;
}

void FxLexer::begin_line() {
  skip_log_prefix();
  size_t begin = cursor_;
  skip_blanks();
  indent_ = static_cast<uint32_t>(cursor_ - begin);
}

// [rank0]:V1121 02:33:03.218000 13001 torch/file.py:10] [0/0] [__aot_graphs]
void FxLexer::skip_log_prefix() {
  size_t end = std::min({text_.whole.find('\n', cursor_), text_.end, cursor_ + kMaxPrefix});
  std::string_view line = text_.whole.substr(cursor_, end - cursor_);
  size_t i = 0;
  if (line.starts_with("[rank")) {
    i = line.find("]:");
    if (i == std::string_view::npos) return;
    i += 2;
    while (i < line.size() && line[i] == ' ') ++i;
  }
  std::string_view head = line.substr(i);
  if (head.size() < 6 || std::string_view("VDIWEC").find(head[0]) == std::string_view::npos || head[5] != ' ') return;
  if (!std::all_of(head.begin() + 1, head.begin() + 5, is_digit)) return;
  size_t close = line.find("] ", i);
  if (close == std::string_view::npos) {
    if (!line.empty() && (line.back() == ']')) cursor_ += line.size();
    return;
  }
  i = close + 1;
  auto is_tag = [&](size_t at) {  // " [0/0]", " [__aot_graphs]"
    return line.substr(at, 2) == " [" && at + 2 < line.size() && (is_digit(line[at + 2]) || line[at + 2] == '_') &&
           line.find(']', at) != std::string_view::npos;
  };
  while (is_tag(i)) i = line.find(']', i) + 1;
  cursor_ += i < line.size() && line[i] == ' ' ? i + 1 : i;
}

void FxLexer::skip_blanks() {
  while (cursor_ < text_.end && is_blank(at(cursor_))) ++cursor_;
}

// --- tokens ---

FxToken FxLexer::make(FxTokenKind kind, size_t begin) const {
  return {kind, static_cast<uint32_t>(begin), text_.whole.substr(begin, cursor_ - begin)};
}

Status FxLexer::advance() {
  skip_blanks();
  while (open_brackets_ > 0 && cursor_ < text_.end && at(cursor_) == '\n') {
    ++cursor_;
    begin_line();
  }
  size_t begin = cursor_;
  char c = at(begin);
  if (at_new_line(begin)) {
    token_ = make(FxTokenKind::end_of_line, begin);
  } else if (c == '#') {
    skip_line();
    token_ = make(FxTokenKind::comment, begin);
  } else if (is_digit(c) || (c == '.' && is_digit(at(begin + 1)))) {
    return number();
  } else if (c == '"' || c == '\'') {
    return string(begin);
  } else if (begins_name(c)) {
    while (begins_name(at(cursor_)) || is_digit(at(cursor_))) ++cursor_;
    bool is_prefix = cursor_ - begin <= 2 && (at(cursor_) == '"' || at(cursor_) == '\'');
    if (is_prefix) return string(begin);
    token_ = make(FxTokenKind::name, begin);
  } else {
    cursor_ += 1;
    for (std::string_view sign : kSigns)
      if (text_.whole.substr(begin, std::min(sign.size(), text_.end - begin)) == sign) {
        cursor_ = begin + sign.size();
        break;
      }
    token_ = make(FxTokenKind::sign, begin);
  }
  return ok_status();
}

Status FxLexer::number() {
  size_t begin = cursor_;
  bool is_float = false;
  auto digits = [&] {
    while (is_digit(at(cursor_))) ++cursor_;
  };
  digits();
  if (at(cursor_) == '.') is_float = true, ++cursor_, digits();
  if (at(cursor_) == 'e' || at(cursor_) == 'E') {
    size_t sign = at(cursor_ + 1) == '+' || at(cursor_ + 1) == '-' ? 2 : 1;
    if (!is_digit(at(cursor_ + sign))) return text_.error(begin, "a number without its exponent");
    is_float = true;
    cursor_ += sign;
    digits();
  }
  bool is_imaginary = at(cursor_) == 'j';
  if (is_imaginary) ++cursor_;
  if (begins_name(at(cursor_)) || at(cursor_) == '.') return text_.error(begin, "a malformed number");
  token_ = make(is_imaginary ? FxTokenKind::imaginary : is_float ? FxTokenKind::floating : FxTokenKind::integer, begin);
  return ok_status();
}

Status FxLexer::string(size_t begin) {
  bool is_raw = false;
  while (at(cursor_) != '"' && at(cursor_) != '\'') is_raw = is_raw || (at(cursor_) | 0x20) == 'r', ++cursor_;
  char quote = at(cursor_);
  bool is_long = at(cursor_ + 1) == quote && at(cursor_ + 2) == quote;
  cursor_ += is_long ? 3 : 1;
  for (;; ++cursor_) {
    if (cursor_ >= text_.end || (!is_long && at(cursor_) == '\n'))
      return text_.error(begin, "the string is not closed");
    if (at(cursor_) == '\\') {
      ++cursor_;
      continue;
    }
    if (at(cursor_) != quote) continue;
    if (!is_long) break;
    if (at(cursor_ + 1) == quote && at(cursor_ + 2) == quote) {
      cursor_ += 2;
      break;
    }
  }
  ++cursor_;
  cursor_ = std::min(cursor_, text_.end);
  token_ = make(FxTokenKind::string, begin);
  return ok_status();
}

bool FxLexer::take_angled(std::string_view* out) {
  if (!is_sign("<")) return false;
  int depth = 0;
  size_t i = token_.at;
  for (; !at_new_line(i); ++i) {
    if (at(i) == '<') ++depth;
    if (at(i) == '>' && --depth == 0) break;
  }
  if (at(i) != '>') return false;
  *out = text_.whole.substr(token_.at, i + 1 - token_.at);
  cursor_ = i + 1;
  return true;
}

Error FxLexer::unexpected(std::string_view wanted) const {
  std::string found = token_.kind == FxTokenKind::end_of_line
                          ? (token_.at >= text_.end ? "the end of the text" : "the end of the line")
                      : token_.kind == FxTokenKind::comment ? "a comment"
                                                            : "`" + std::string(token_.text.substr(0, 40)) + "`";
  return text_.error(token_.at, "expected " + std::string(wanted) + ", found " + found);
}

// --- string literals ---

namespace {

// The character of an escape such as `\x41` or `\u0041`; `*i` moves to the last digit read.
uint32_t hex_escape(std::string_view s, size_t* i, size_t digits) {
  uint32_t c = 0;
  for (size_t k = 0; k < digits && *i + 1 < s.size(); ++k) {
    char d = s[*i + 1];
    int v = is_digit(d) ? d - '0' : (d | 0x20) >= 'a' && (d | 0x20) <= 'f' ? (d | 0x20) - 'a' + 10 : -1;
    if (v < 0) break;
    c = c << 4 | static_cast<uint32_t>(v);
    ++*i;
  }
  return c;
}

}  // namespace

std::string fx_string_value(std::string_view literal) {
  size_t quote = literal.find_first_of("'\"");
  if (quote == std::string_view::npos) return std::string(literal);
  std::string_view prefix = literal.substr(0, quote), body = literal.substr(quote);
  size_t marks = body.size() >= 6 && body[1] == body[0] && body[2] == body[0] ? 3 : 1;
  if (body.size() < 2 * marks) return {};
  body = body.substr(marks, body.size() - 2 * marks);
  if (prefix.find_first_of("rR") != std::string_view::npos) return std::string(body);
  std::string out;
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\' || i + 1 >= body.size()) {
      out.push_back(body[i]);
      continue;
    }
    char c = body[++i];
    constexpr std::string_view kFrom = "ntrabfv0\\'\"", kTo("\n\t\r\a\b\f\v\0\\'\"", 11);
    size_t known = kFrom.find(c);
    if (known != std::string_view::npos) out.push_back(kTo[known]);
    else if (c == 'x') append_utf8(hex_escape(body, &i, 2), &out);
    else if (c == 'u') append_utf8(hex_escape(body, &i, 4), &out);
    else if (c == 'U') append_utf8(hex_escape(body, &i, 8), &out);
    else if (c != '\n') out.append({'\\', c});
  }
  return out;
}

}  // namespace sg
