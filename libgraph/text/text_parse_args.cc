#include "libgraph/base/nearest.h"
#include "libgraph/text/text_parser.h"

namespace sg::text {
namespace {

std::optional<ArgKind> text_kind(std::string_view word) {
  auto kind = enum_named<ArgKind>(word);
  if (!kind || *kind < ArgKind::device) return std::nullopt;
  return kind;
}

}  // namespace

bool TextParser::arguments(PendingNode* node) {
  if (!lexer_.expect('(', "after the op")) return false;
  if (lexer_.take(')')) return true;
  bool has_keyword = false;
  do {
    const char* at = (lexer_.peek(), lexer_.cursor());
    StrId key = take_key();
    if (has_keyword && !key)
      return lexer_.error_at(at, "parse-argument", "a positional argument after a keyword argument",
                             "arguments with `name=` come last");
    has_keyword = bool(key);
    node->args.emplace_back();
    if (!argument(&node->args.back(), key, 0)) return false;
  } while (lexer_.take(','));
  return lexer_.expect(')', "or `,` after an argument");
}

// Takes `key=` if it comes next; else returns none.
StrId TextParser::take_key() {
  const char* before = lexer_.cursor();
  std::string_view key;
  if (lexer_.peek() == '"' ? !lexer_.string_ahead(&key) : (key = lexer_.word()).empty()) return StrId();
  if (lexer_.peek() == '=' && lexer_.take('=')) return pool_.str(key);
  lexer_.back_to(before);
  return StrId();
}

bool TextParser::argument(Arg* out, StrId key, int depth) {
  if (!argument_value(out, key ? pool_.strings[key] : std::string_view(), depth)) return false;
  out->set_key(key);
  return true;
}

bool TextParser::argument_value(Arg* out, std::string_view key, int depth) {
  if (depth > kMaxDepth)
    return lexer_.error("parse-depth", "lists are nested more than " + std::to_string(kMaxDepth) + " deep");
  char c = lexer_.peek();
  switch (c) {
    case '%': {
      ValueId v;
      if (!value_use(&v)) return false;
      if (v) *out = Arg::value(v);
      return true;
    }
    case '"': {
      StrId s;
      if (!string(&s)) return false;
      *out = Arg::text(ArgKind::string, s);
      return true;
    }
    case '[': {
      std::vector<Arg> list;
      lexer_.take('[');
      if (!items("a list", ']', depth, &list)) return false;
      *out = Arg::list(std::move(list));
      return true;
    }
    case '{': return dict(out, depth);
    case '@': return group_argument(out);
    case '(': return expression_argument(out);
    default: break;
  }
  if (c == '-' || is_digit(c)) return number_argument(out);
  if (is_letter(c)) {
    std::string_view w = lexer_.word();
    lexer_.back_to(w.data());
    return word_argument(w, out, key, depth);
  }
  return lexer_.expected("an argument", c == '\0' ? "the node goes on in the same line" : "");
}

bool TextParser::items(std::string_view what, char close, int depth, std::vector<Arg>* out) {
  if (lexer_.take(close)) return true;
  do {
    out->emplace_back();
    if (!argument(&out->back(), StrId(), depth + 1)) return false;
  } while (lexer_.take(','));
  return lexer_.expect(close, "or `,` in " + std::string(what));
}

bool TextParser::dict(Arg* out, int depth) {
  std::vector<Arg> entries;
  lexer_.take('{');
  if (!lexer_.take('}')) {
    do {
      StrId key;
      std::string_view text;
      if (!lexer_.text<is_word_char>("a key", &text)) return false;
      key = pool_.str(text);
      if (!lexer_.expect(':', "after a key")) return false;
      entries.emplace_back();
      if (!argument(&entries.back(), key, depth + 1)) return false;
    } while (lexer_.take(','));
    if (!lexer_.expect('}', "or `,` in a dict")) return false;
  }
  *out = Arg::dict(std::move(entries));
  return true;
}

// A number is a plain argument, unless an operator follows: then it begins an expression.
bool TextParser::number_argument(Arg* out) {
  const char* begin = lexer_.cursor();
  const char* digits = begin + (*begin == '-');
  if (digits == lexer_.end()) return lexer_.expected("an argument");
  bool is_number = is_digit(*digits) || *digits == '.';
  if (!is_number) {
    std::string_view w = std::string_view(digits, static_cast<size_t>(lexer_.end() - digits));
    lexer_.back_to(digits);
    w = lexer_.peek_word();
    lexer_.back_to(begin);
    if (w != "inf" && w != "nan") return expression_argument(out);
  }
  if (lexer_.number_is_float()) {
    double v;
    if (!lexer_.floating(&v)) return false;
    *out = Arg::floating(v);
    return true;
  }
  int64_t v;
  if (!lexer_.integer("a number", &v)) return false;
  char next = lexer_.peek();
  if (next == '+' || next == '-' || next == '*' || next == '/' || next == '%') {
    lexer_.back_to(begin);
    return expression_argument(out);
  }
  *out = Arg::integer(v);
  return true;
}

bool TextParser::word_argument(std::string_view w, Arg* out, std::string_view key, int depth) {
  const char* after = w.data() + w.size();
  bool ends =
      after == lexer_.end() || *after == ',' || *after == ')' || *after == ']' || *after == '}' || *after == ' ';
  bool has_colon = after != lexer_.end() && *after == ':';
  auto take = [&](Arg arg) {
    lexer_.back_to(after);
    *out = std::move(arg);
    return true;
  };
  if (w == "none") return take(Arg::none());
  if (w == "true" || w == "false") return take(Arg::boolean(w == "true"));
  if (w == "inf" || w == "nan") {
    double v;
    if (!lexer_.floating(&v)) return false;
    *out = Arg::floating(v);
    return true;
  }
  if (w == "slice" || w == "complex" || w == "expr") return call_argument(w, out, depth);
  auto kind = text_kind(w);
  if (has_colon && (kind || w == "dtype" || w == "graph")) {
    lexer_.back_to(after + 1);
    if (kind) return kind_argument(*kind, out);
    std::string_view name;
    const char* at = lexer_.cursor();
    if (!lexer_.text<is_word_char>("a name", &name)) return false;
    if (w == "dtype") {
      auto dtype = name == "none" ? DType::none : parse_dtype(name);
      if (!dtype) return lexer_.error_at(at, "parse-type", "`" + std::string(name) + "` is not a dtype");
      *out = Arg::dtype(*dtype);
      return true;
    }
    StrId id = pool_.str(name);
    auto [index, is_new] = nested_index_.try_emplace(id, static_cast<uint32_t>(nested_names_.size()));
    if (is_new) nested_names_.push_back({id, lexer_.line(), at});
    node_.mentions_nested = true;
    *out = Arg::graph(NestedId(*index));
    return true;
  }
  if (key == "device" || key == "layout" || key == "memory_format") {
    if (!parse_dtype(w)) return kind_argument(*enum_named<ArgKind>(key), out);
  }
  if (auto dtype = parse_dtype(w)) return take(Arg::dtype(*dtype));
  if (ends && parse_torch_dtype(w))
    return lexer_.expected("a dtype", "write " + std::string(dtype_name(*parse_torch_dtype(w))));
  if (w == "True" || w == "False" || w == "None" || w == "null")
    return lexer_.expected("an argument", std::string("write ") + (w == "True"    ? "true"
                                                                   : w == "False" ? "false"
                                                                                  : "none"));
  return expression_argument(out);
}

bool TextParser::call_argument(std::string_view w, Arg* out, int depth) {
  const char* at = w.data();
  lexer_.back_to(at + w.size());
  if (!lexer_.expect('(', "after `" + std::string(w) + "`")) return false;
  if (w == "expr") {
    Expr e;
    if (!expr(&e) || !lexer_.expect(')', "after the expression")) return false;
    *out = Arg::expr(e);
    return true;
  }
  if (w == "complex") {
    double re, im;
    if (!lexer_.floating(&re) || !lexer_.expect(',', "between the parts") || !lexer_.floating(&im)) return false;
    *out = Arg::complex(re, im);
    return lexer_.expect(')', "after the imaginary part");
  }
  std::vector<Arg> parts;
  if (!items("a slice", ')', depth, &parts)) return false;
  if (parts.size() != 3)
    return lexer_.error_at(at, "parse-argument", "a slice has a begin, an end and a step",
                           "write `none` for what is left out");
  *out = Arg::slice(std::move(parts[0]), std::move(parts[1]), std::move(parts[2]));
  return true;
}

bool TextParser::kind_argument(ArgKind kind, Arg* out) {
  std::string_view s;
  if (!lexer_.text<is_device_char>("a name", &s)) return false;
  *out = Arg::text(kind, pool_.str(s));
  return true;
}

bool TextParser::expression_argument(Arg* out) {
  Expr e;
  if (!expr(&e)) return false;
  *out = Arg::expr(e);
  return true;
}

bool TextParser::group_argument(Arg* out) {
  const char* at = lexer_.cursor();
  lexer_.take('@');
  std::string_view text;
  uint32_t ordinal = 0;
  if (!lexer_.text<is_axis_char>("the axis of a group", &text)) return false;
  StrId axis = pool_.str(text);
  if (lexer_.take(':') && !lexer_.natural("the ordinal of the group", &ordinal)) return false;
  GroupId group = job_.find_group(axis, ordinal);
  if (group) {
    *out = Arg::group(group);
    return true;
  }
  Nearest nearest(pool_.strings[axis]);
  for (const Group& g : job_.groups)
    if (g.ordinal == ordinal) nearest.offer(pool_.strings[g.axis]);
  std::string hint = nearest.hint("@");
  return lexer_.error_at(
      at, "parse-name",
      "there is no group @" + pool_.strings.str(axis) + (ordinal ? ":" + std::to_string(ordinal) : ""),
      hint.empty() ? "declare it in the header, as in: group @ep [0 1]" : hint);
}

}  // namespace sg::text
