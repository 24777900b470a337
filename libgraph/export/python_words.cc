#include "libgraph/export/python_words.h"

#include <algorithm>
#include <iterator>

#include "libgraph/base/utf8.h"
#include "libgraph/text/text_words.h"

namespace sg::python {

namespace {

constexpr size_t kWidth = 120;

// Sorted. `_` is the name of unused results.
constexpr std::string_view kKeywords[] = {
    "False", "None", "True",   "_",        "__debug__", "and", "as",   "assert", "async",  "await",
    "break", "case", "class",  "continue", "def",       "del", "elif", "else",   "except", "finally",
    "for",   "from", "global", "if",       "import",    "in",  "is",   "lambda", "match",  "nonlocal",
    "not",   "or",   "pass",   "raise",    "return",    "try", "type", "while",  "with",   "yield"};

// The builtins that the generated code uses, or that a reader would miss if shadowed.
constexpr std::string_view kBuiltins[] = {
    "abs",     "all",    "any",       "bool",     "bytes", "callable", "chr",      "complex",    "dict",
    "dir",     "divmod", "enumerate", "eval",     "exec",  "filter",   "float",    "format",     "frozenset",
    "getattr", "hash",   "help",      "hex",      "id",    "input",    "int",      "isinstance", "iter",
    "len",     "list",   "map",       "max",      "min",   "next",     "object",   "oct",        "open",
    "ord",     "pow",    "print",     "property", "range", "repr",     "reversed", "round",      "set",
    "setattr", "slice",  "sorted",    "str",      "sum",   "super",    "tuple",    "vars",       "zip"};

bool is_among(std::string_view s, const auto& list) { return std::binary_search(std::begin(list), std::end(list), s); }

void append_hex(unsigned value, size_t digits, std::string* out) {
  for (size_t i = digits; i-- > 0;) *out += "0123456789abcdef"[value >> (4 * i) & 15];
}

unsigned char byte_at(std::string_view s, size_t i) { return static_cast<unsigned char>(s[i]); }

void append_escaped(std::string_view s, bool quotes, std::string* out) {
  for (size_t i = 0; i < s.size();) {
    unsigned char c = byte_at(s, i);
    size_t length = c < 0x80 ? 1 : utf8_length(s.substr(i));
    std::string_view bytes = s.substr(i, std::max<size_t>(length, 1));
    if (c == '\n') *out += "\\n";
    else if (c < 0x20 || c == 0x7F) *out += "\\x", append_hex(c, 2, out);
    else if (c == '\\' || (quotes && c == '"')) *out += '\\', *out += s[i];
    else if (length == 0) *out += "\\udc", append_hex(c, 2, out);
    else if (const auto hidden = length > 1 ? hidden_character(bytes) : std::nullopt) append_u_escape(*hidden, out);
    else *out += bytes;
    i += bytes.size();
  }
}

// The width of a text in columns: characters, not bytes.
size_t width_of(std::string_view s) {
  return static_cast<size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

bool is_identifier(std::string_view s) {
  if (s.empty() || is_digit(s[0]) || is_among(s, kKeywords)) return false;
  return std::all_of(s.begin(), s.end(), is_word);
}

bool is_dotted_name(std::string_view s) {
  while (true) {
    size_t dot = s.find('.');
    if (!is_identifier(s.substr(0, dot))) return false;
    if (dot == s.npos) return true;
    s.remove_prefix(dot + 1);
  }
}

void append_string(std::string_view s, std::string* out) { *out += '"', append_escaped(s, true, out), *out += '"'; }

std::string string_literal(std::string_view s) {
  std::string out;
  append_string(s, &out);
  return out;
}

std::string float_literal(double v) {
  std::string out;
  text::append_float(v, &out);
  return out;
}

void append_comment(std::string_view s, std::string* out) { append_escaped(s, false, out); }

void append_docstring(std::string_view s, std::string* out) { append_escaped(s, true, out); }

bool Scope::is_taken(const std::string& name) const {
  for (const Scope* scope = this; scope; scope = scope->outer_)
    if (scope->taken_.contains(name)) return true;
  return is_among(name, kKeywords) || is_among(name, kBuiltins);
}

std::string Scope::claim(std::string_view wish) {
  std::string base;
  for (char c : wish)
    if ((c & 0xC0) != 0x80) base += is_word(c) ? c : '_';  // one per character, not per byte
  if (base.empty() || is_digit(base[0])) base.insert(0, "_");
  std::string name = base;
  if (is_taken(name)) {
    uint32_t& suffix = last_suffix_[base];
    do name = base + "_" + std::to_string(++suffix);
    while (is_taken(name));
  }
  taken_.insert(name);
  return name;
}

namespace {

// The bracket to break the line after: that of the call, before any string literal that could contain brackets.
// npos = none.
size_t breaking_bracket(std::string_view code) {
  size_t quote = code.find('"'), assign = code.find(" = ");
  size_t open = code.find_first_of("([{", assign < quote ? assign : 0);
  if (open > kWidth) open = code.find_first_of("([{");
  return open < quote ? open : code.npos;
}

void fill_lines(size_t indent, std::string_view rest, std::string* out) {
  size_t column = 0;
  while (!rest.empty()) {
    size_t length = std::min(rest.find(kBreak), rest.size()), width = width_of(rest.substr(0, length));
    if (column > 0 && column + 1 + width > kWidth) *out += '\n', column = 0;
    if (column == 0) out->append(indent, ' '), column = indent;
    else *out += ' ', ++column;
    out->append(rest.substr(0, length)), column += width;
    rest.remove_prefix(std::min(length + 1, rest.size()));
  }
}

}  // namespace

void append_line(size_t indent, std::string_view code, std::string_view comment, std::string* out) {
  size_t begin = out->size(), open = breaking_bracket(code);
  bool fits = width_of(code) + indent <= kWidth || open == code.npos;
  out->append(indent, ' ').append(fits ? code : code.substr(0, open + 1));
  std::replace(out->begin() + static_cast<std::ptrdiff_t>(begin), out->end(), kBreak, ' ');
  // The comment states the result types, so it stays on the first line.
  if (!comment.empty()) out->append("  # ").append(comment);
  *out += '\n';
  if (fits) return;
  fill_lines(indent + 4, code.substr(open + 1), out);
  *out += '\n';
}

}  // namespace sg::python
