#include <algorithm>

#include "libgraph/import/fx_parser.h"

namespace sg {
namespace {

// Binary operators by precedence, loosest first.
constexpr std::string_view kLevels[][8] = {{"or"},       {"and"},    {"==", "!=", "<=", ">=", "<", ">", "is", "in"},
                                           {"|"},        {"^"},      {"&"},
                                           {"<<", ">>"}, {"+", "-"}, {"*", "/", "//", "%", "@"}};
constexpr int kLevelCount = static_cast<int>(std::size(kLevels));

constexpr std::string_view kReserved[] = {"return", "class", "def",   "lambda", "if",
                                          "else",   "for",   "while", "import", "del"};

}  // namespace

Error FxParser::too_deep(size_t at) const {
  return lexer_.text().error(at, "nested deeper than " + std::to_string(kMaxFxDepth) + " levels");
}

Result<uint32_t> FxParser::add(FxKind kind, uint32_t at, std::string_view text, const std::vector<uint32_t>& children) {
  FxExpr e;
  e.kind = kind;
  e.at = at;
  e.text = text;
  e.first = static_cast<uint32_t>(file_->children.size());
  e.count = static_cast<uint32_t>(children.size());
  uint32_t depth = 0;
  for (uint32_t c : children) depth = std::max<uint32_t>(depth, file_->exprs[c].depth);
  if (depth >= kMaxFxDepth) return too_deep(at);
  e.depth = static_cast<uint8_t>(depth + 1);
  file_->children.insert(file_->children.end(), children.begin(), children.end());
  file_->exprs.push_back(e);
  return static_cast<uint32_t>(file_->exprs.size() - 1);
}

uint32_t FxParser::add_none(uint32_t at) {
  FxExpr e;
  e.kind = FxKind::name;
  e.at = at;
  e.depth = 1;
  e.text = "None";
  file_->exprs.push_back(e);
  return static_cast<uint32_t>(file_->exprs.size() - 1);
}

Status FxParser::expect(std::string_view sign, std::string_view where) {
  if (!lexer_.is_sign(sign)) return lexer_.unexpected("`" + std::string(sign) + "` " + std::string(where));
  return lexer_.advance();
}

Status FxParser::skip_comments() {
  while (lexer_.peek().kind == FxTokenKind::comment) SG_TRY(lexer_.advance());
  return ok_status();
}

Status FxParser::descriptors(uint32_t expr) {
  bool is_first = true;
  while (lexer_.peek().kind == FxTokenKind::comment) {
    std::string_view text = lexer_.peek().text.substr(1);
    size_t begin = text.find_first_not_of(" \t");
    text.remove_prefix(std::min(begin, text.size()));
    while (!text.empty() && (text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
    if (is_first && expr != kNoFx) file_->described.push_back({expr, text});
    is_first = false;
    SG_TRY(lexer_.advance());
  }
  return ok_status();
}

Result<uint32_t> FxParser::whole_expression() {
  if (!lexer_.next_line()) return lexer_.text().error(lexer_.text().begin, "expected an expression, found nothing");
  SG_TRY(lexer_.start_line());
  SG_ASSIGN(uint32_t e, expression());
  if (lexer_.peek().kind != FxTokenKind::end_of_line) return lexer_.unexpected("the end");
  return e;
}

// The operator at the cursor if it belongs to this level; else empty. `not in` and `is not` are read as their first
// word.
Result<std::string_view> FxParser::binary_sign(int level) {
  const FxToken token = lexer_.peek();
  if (token.kind != FxTokenKind::sign && token.kind != FxTokenKind::name) return std::string_view();
  for (std::string_view sign : kLevels[level]) {
    if (sign.empty() || token.text != sign) continue;
    SG_TRY(lexer_.advance());
    if (sign == "is" && lexer_.is_name("not")) {
      SG_TRY(lexer_.advance());
      return std::string_view("is not");
    }
    return sign;
  }
  return std::string_view();
}

// Precedence climbing: one stack frame per nesting level, not per precedence level.
Result<uint32_t> FxParser::expression(int level) {
  SG_ASSIGN(uint32_t left, unary());
  for (bool found = true; found;) {
    found = false;
    for (int l = kLevelCount - 1; l >= level && !found; --l) {
      uint32_t at = file_->exprs[left].at;
      SG_ASSIGN(std::string_view sign, binary_sign(l));
      if (sign.empty()) continue;
      found = true;
      SG_ASSIGN(uint32_t right, expression(l + 1));
      SG_ASSIGN(left, add(FxKind::binary, at, sign, {left, right}));
    }
  }
  return left;
}

Result<uint32_t> FxParser::unary() {
  const FxToken token = lexer_.peek();
  bool is_sign =
      lexer_.is_sign("-") || lexer_.is_sign("+") || lexer_.is_sign("~") || lexer_.is_sign("*") || lexer_.is_sign("**");
  if (!is_sign && !lexer_.is_name("not")) return postfix();
  if (++nesting_ > kMaxFxDepth) return too_deep(token.at);
  SG_TRY(lexer_.advance());
  SG_ASSIGN(uint32_t operand, unary());
  --nesting_;
  return add(FxKind::unary, token.at, token.text, {operand});
}

Result<uint32_t> FxParser::postfix() {
  SG_ASSIGN(uint32_t e, atom());
  for (;;) {
    if (lexer_.is_sign("(")) {
      SG_ASSIGN(e, call(e));
    } else if (lexer_.is_sign("[")) {
      SG_ASSIGN(e, subscript(e));
    } else if (lexer_.is_sign(".")) {
      SG_TRY(lexer_.advance());
      if (lexer_.peek().kind != FxTokenKind::name) return lexer_.unexpected("a name after `.`");
      std::string_view text = lexer_.peek().text;
      SG_TRY(lexer_.advance());
      SG_ASSIGN(e, add(FxKind::attribute, file_->exprs[e].at, text, {e}));
    } else if (lexer_.is_sign("**")) {
      SG_TRY(lexer_.advance());
      if (++nesting_ > kMaxFxDepth) return too_deep(lexer_.peek().at);
      SG_ASSIGN(uint32_t power, unary());
      --nesting_;
      return add(FxKind::binary, file_->exprs[e].at, "**", {e, power});
    } else {
      return e;
    }
  }
}

Result<uint32_t> FxParser::atom() {
  const FxToken token = lexer_.peek();
  auto literal = [&](FxKind kind) -> Result<uint32_t> {
    SG_TRY(lexer_.advance());
    return add(kind, token.at, token.text);
  };
  switch (token.kind) {
    case FxTokenKind::name: return name();
    case FxTokenKind::integer: return literal(FxKind::integer);
    case FxTokenKind::floating: return literal(FxKind::floating);
    case FxTokenKind::imaginary: return literal(FxKind::imaginary);
    case FxTokenKind::string: return literal(FxKind::string);
    case FxTokenKind::sign: break;
    default: return lexer_.unexpected("an expression");
  }
  if (token.text == "...") return literal(FxKind::ellipsis);
  if (token.text == "[") return bracketed("]", FxKind::list);
  if (token.text == "(") return bracketed(")", FxKind::tuple);
  if (token.text == "{") return braces();
  std::string_view angled;
  if (!lexer_.take_angled(&angled)) return lexer_.unexpected("an expression");
  SG_TRY(lexer_.advance());
  return add(FxKind::opaque, token.at, angled);
}

// A dotted name, read as one.
Result<uint32_t> FxParser::name() {
  const FxToken first = lexer_.peek();
  for (std::string_view word : kReserved)
    if (first.text == word) return lexer_.unexpected("an expression");
  SG_TRY(lexer_.advance());
  size_t end = first.at + first.text.size();
  while (lexer_.is_sign(".") && lexer_.peek().at == end) {
    SG_TRY(lexer_.advance());
    std::string_view inner;
    const FxToken part = lexer_.peek();
    if (lexer_.take_angled(&inner)) {  // module.<lambda>
      end = part.at + inner.size();
    } else if (part.kind == FxTokenKind::name && part.at == end + 1) {
      end = part.at + part.text.size();
    } else {
      return lexer_.unexpected("a name after `.`");
    }
    SG_TRY(lexer_.advance());
  }
  return add(FxKind::name, first.at, lexer_.text().whole.substr(first.at, end - first.at));
}

// [a, b], (a, b), (a,), (a): items may have comments after them. A single item in parentheses is that item.
Result<uint32_t> FxParser::bracketed(std::string_view close, FxKind kind) {
  uint32_t at = lexer_.peek().at;
  if (++nesting_ > kMaxFxDepth) return too_deep(at);
  lexer_.open();
  SG_TRY(lexer_.advance());
  SG_TRY(skip_comments());
  std::vector<uint32_t> items;
  bool has_comma = false;
  while (!lexer_.is_sign(close)) {
    SG_ASSIGN(uint32_t item, expression());
    items.push_back(item);
    if (lexer_.is_sign(",")) {
      has_comma = true;
      SG_TRY(lexer_.advance());
    } else if (!lexer_.is_sign(close) && lexer_.peek().kind != FxTokenKind::comment) {
      return lexer_.unexpected("`,` or `" + std::string(close) + "`");
    }
    SG_TRY(descriptors(item));
  }
  lexer_.close();
  --nesting_;
  SG_TRY(lexer_.advance());
  if (kind == FxKind::tuple && items.size() == 1 && !has_comma) return items[0];
  return add(kind, at, {}, items);
}

Result<uint32_t> FxParser::braces() {
  uint32_t at = lexer_.peek().at;
  if (++nesting_ > kMaxFxDepth) return too_deep(at);
  lexer_.open();
  SG_TRY(lexer_.advance());
  SG_TRY(skip_comments());
  std::vector<uint32_t> items;
  size_t pairs = 0, entries = 0;
  for (; !lexer_.is_sign("}"); ++entries) {
    SG_ASSIGN(uint32_t key, expression());
    items.push_back(key);
    if (lexer_.is_sign(":")) {
      SG_TRY(lexer_.advance());
      SG_ASSIGN(uint32_t value, expression());
      items.push_back(value);
      ++pairs;
    }
    if (lexer_.is_sign(",")) SG_TRY(lexer_.advance());
    else if (!lexer_.is_sign("}") && lexer_.peek().kind != FxTokenKind::comment) return lexer_.unexpected("`,` or `}`");
    SG_TRY(skip_comments());
  }
  if (pairs != 0 && pairs != entries) return lexer_.unexpected("a dict with a value for every key");
  lexer_.close();
  --nesting_;
  SG_TRY(lexer_.advance());
  return add(pairs == entries ? FxKind::dict : FxKind::set, at, {}, items);
}

Result<uint32_t> FxParser::call(uint32_t callee) {
  if (++nesting_ > kMaxFxDepth) return too_deep(lexer_.peek().at);
  lexer_.open();
  SG_TRY(lexer_.advance());
  SG_TRY(skip_comments());
  std::vector<uint32_t> parts{callee};
  while (!lexer_.is_sign(")")) {
    uint32_t at = lexer_.peek().at;
    SG_ASSIGN(uint32_t arg, expression());
    if (lexer_.is_sign("=") && file_->exprs[arg].kind == FxKind::name) {
      std::string_view key = file_->exprs[arg].text;
      SG_TRY(lexer_.advance());
      SG_ASSIGN(uint32_t value, expression());
      SG_ASSIGN(arg, add(FxKind::keyword, at, key, {value}));
    }
    parts.push_back(arg);
    if (lexer_.is_sign(",")) SG_TRY(lexer_.advance());
    else if (!lexer_.is_sign(")") && lexer_.peek().kind != FxTokenKind::comment)
      return lexer_.unexpected("`,` or `)` after an argument");
    SG_TRY(descriptors(arg));
  }
  lexer_.close();
  --nesting_;
  SG_TRY(lexer_.advance());
  return add(FxKind::call, file_->exprs[callee].at, {}, parts);
}

Result<uint32_t> FxParser::subscript(uint32_t container) {
  uint32_t at = lexer_.peek().at;
  if (++nesting_ > kMaxFxDepth) return too_deep(at);
  lexer_.open();
  SG_TRY(lexer_.advance());
  std::vector<uint32_t> items;
  bool has_comma = false;
  while (!lexer_.is_sign("]")) {
    SG_ASSIGN(uint32_t item, slice_or_index());
    items.push_back(item);
    if (lexer_.is_sign(",")) {
      has_comma = true;
      SG_TRY(lexer_.advance());
    } else if (!lexer_.is_sign("]")) {
      return lexer_.unexpected("`]` after the index");
    }
  }
  if (items.empty()) return lexer_.unexpected("an index");
  lexer_.close();
  --nesting_;
  SG_TRY(lexer_.advance());
  uint32_t index = items[0];
  if (has_comma) {
    SG_ASSIGN(index, add(FxKind::tuple, at, {}, items));
  }
  return add(FxKind::subscript, file_->exprs[container].at, {}, {container, index});
}

Result<uint32_t> FxParser::slice_or_index() {
  uint32_t at = lexer_.peek().at;
  std::vector<uint32_t> parts;
  auto part = [&]() -> Status {
    if (lexer_.is_sign(":") || lexer_.is_sign("]") || lexer_.is_sign(","))
      return parts.push_back(add_none(at)), ok_status();
    SG_ASSIGN(uint32_t e, expression());
    parts.push_back(e);
    return ok_status();
  };
  SG_TRY(part());
  bool is_slice = false;
  while (lexer_.is_sign(":") && parts.size() < 3) {
    is_slice = true;
    SG_TRY(lexer_.advance());
    SG_TRY(part());
  }
  if (!is_slice) return parts[0];
  if (parts.size() == 2) parts.push_back(add_none(at));
  return add(FxKind::slice, at, {}, parts);
}

}  // namespace sg
