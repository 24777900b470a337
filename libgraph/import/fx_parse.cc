#include "libgraph/import/fx_parse.h"

#include <algorithm>
#include <limits>

#include "libgraph/base/utf8.h"
#include "libgraph/import/fx_parser.h"

namespace sg {
namespace {

bool starts_word(std::string_view line, std::string_view word) {
  return line.starts_with(word) && line.size() > word.size() && line[word.size()] == ' ';
}

std::string_view trim(std::string_view s) {
  size_t begin = s.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return s.substr(begin, s.find_last_not_of(" \t\r") + 1 - begin);
}

// The text of "# text" or "#text".
std::string_view comment_text(std::string_view comment) { return trim(comment.substr(1)); }

constexpr std::string_view kCompound[] = {
    "+=", "-=", "*=", "/=", "//=", "%=", "**=", "&=", "|=", "^=", "<<=", ">>=", "@="};

}  // namespace

std::string_view FxFile::descriptor_of(uint32_t expr) const {
  auto it = std::lower_bound(described.begin(), described.end(), expr,
                             [](const Described& d, uint32_t e) { return d.expr < e; });
  return it != described.end() && it->expr == expr ? it->text : std::string_view();
}

// --- lines ---

Status FxParser::read_file() {
  while (lexer_.next_line()) SG_TRY(read_line());
  SG_TRY(close_modules(0));
  std::stable_sort(file_->described.begin(), file_->described.end(),
                   [](const FxFile::Described& a, const FxFile::Described& b) { return a.expr < b.expr; });
  return ok_status();
}

Status FxParser::read_line() {
  std::string_view line = lexer_.rest_of_line();
  if (starts_word(line, "class")) return class_header();
  if (starts_word(line, "def")) return function_header();
  bool is_body = !open_.empty() && open_.back().in_function && lexer_.indent() > open_.back().class_indent &&
                 (open_.back().body_indent == kNoFx || lexer_.indent() >= open_.back().body_indent);
  if (is_body) return statement_line();
  ++file_->ignored_lines;
  return ok_status();
}

// A module ends at a line that is indented less than its body.
Status FxParser::close_modules(uint32_t indent) {
  while (!open_.empty() && open_.back().class_indent >= indent) {
    SG_TRY(check_end(file_->modules[open_.back().module]));
    open_.pop_back();
  }
  context_ = kNoFx;
  return ok_status();
}

Status FxParser::check_end(const FxModule& module) const {
  if (!module.has_forward) return ok_status();
  if (!module.statements.empty() && module.statements.back().kind == FxStatementKind::returns) return ok_status();
  return lexer_.text().error(
      module.at, "`" + std::string(module.name.empty() ? "forward" : module.name) + "` has no return at its end",
      "the text is cut: give all that was printed");
}

// class <lambda>(torch.nn.Module):
Status FxParser::class_header() {
  std::string_view line = lexer_.rest_of_line();
  size_t paren = line.find('(');
  if (paren == std::string_view::npos || trim(line).back() != ':') return ++file_->ignored_lines, ok_status();
  SG_TRY(close_modules(lexer_.indent()));
  FxModule module;
  module.name = trim(line.substr(6, paren - 6));
  module.at = static_cast<uint32_t>(lexer_.offset());
  module.indent = lexer_.indent();
  module.parent = open_.empty() ? kNoFx : open_.back().module;
  if (open_.size() >= kMaxFxDepth) return too_deep(module.at);
  open_.push_back({static_cast<uint32_t>(file_->modules.size()), lexer_.indent(), kNoFx, false});
  file_->modules.push_back(std::move(module));
  return ok_status();
}

// def forward(self, x: "f32[4]", ...) -> type:   within a class, or alone
Status FxParser::function_header() {
  bool is_inside = !open_.empty() && lexer_.indent() > open_.back().class_indent && !open_.back().in_function;
  if (!is_inside) {
    SG_TRY(close_modules(lexer_.indent()));
    FxModule module;
    module.at = static_cast<uint32_t>(lexer_.offset());
    module.indent = lexer_.indent();
    module.parent = open_.empty() ? kNoFx : open_.back().module;
    open_.push_back({static_cast<uint32_t>(file_->modules.size()), lexer_.indent(), kNoFx, false});
    file_->modules.push_back(std::move(module));
  }
  open_.back().in_function = true;
  context_ = kNoFx;
  FxModule* module = innermost();
  if (module->has_forward) return lexer_.text().error(lexer_.offset(), "a second function of the same module");
  module->has_forward = true;
  SG_TRY(lexer_.start_line());
  SG_TRY(lexer_.advance());  // def
  if (lexer_.peek().kind != FxTokenKind::name) return lexer_.unexpected("the function's name");
  SG_TRY(lexer_.advance());
  if (!lexer_.is_sign("(")) return lexer_.unexpected("`(` after the function's name");
  lexer_.open();
  SG_TRY(lexer_.advance());
  SG_TRY(skip_comments());
  while (!lexer_.is_sign(")")) SG_TRY(parameter(module));
  lexer_.close();
  SG_TRY(lexer_.advance());
  if (lexer_.is_sign("->")) {
    SG_TRY(lexer_.advance());
    SG_ASSIGN(uint32_t unused, expression());
    (void)unused;
  }
  if (!lexer_.is_sign(":")) return lexer_.unexpected("`:` at the end of the function's header");
  return ok_status();
}

Status FxParser::parameter(FxModule* module) {
  FxParam param;
  param.at = lexer_.peek().at;
  bool is_star = lexer_.is_sign("*") || lexer_.is_sign("**");
  if (is_star) SG_TRY(lexer_.advance());
  if (lexer_.peek().kind == FxTokenKind::name) {
    param.name = lexer_.peek().text;
    SG_TRY(lexer_.advance());
  } else if (!is_star && !lexer_.is_sign("/")) {
    return lexer_.unexpected("a parameter");
  } else if (!is_star) {
    SG_TRY(lexer_.advance());
  }
  if (lexer_.is_sign(":")) {
    SG_TRY(lexer_.advance());
    SG_ASSIGN(param.annotation, expression());
  }
  if (lexer_.is_sign("=")) {
    SG_TRY(lexer_.advance());
    SG_ASSIGN(param.value, expression());
  }
  if (lexer_.is_sign(",")) SG_TRY(lexer_.advance());
  else if (!lexer_.is_sign(")") && lexer_.peek().kind != FxTokenKind::comment)
    return lexer_.unexpected("`,` or `)` after a parameter");
  while (lexer_.peek().kind == FxTokenKind::comment) {
    param.descriptor = comment_text(lexer_.peek().text);
    SG_TRY(lexer_.advance());
  }
  if (!param.name.empty() && !(param.name == "self" && module->params.empty() && param.annotation == kNoFx))
    module->params.push_back(param);
  return ok_status();
}

Status FxParser::statement_line() {
  Open& open = open_.back();
  const uint32_t indent = lexer_.indent();
  SG_TRY(lexer_.start_line());
  if (lexer_.peek().kind == FxTokenKind::comment) {
    context_ = static_cast<uint32_t>(file_->comments.size());
    file_->comments.push_back(lexer_.peek().text);
    return ok_status();  // torch <= 2.8 indents comments one column more than the body
  }
  if (open.body_indent == kNoFx) open.body_indent = indent;
  for (bool is_first = true;; is_first = false) {
    if (lexer_.peek().kind != FxTokenKind::end_of_line && lexer_.peek().kind != FxTokenKind::comment)
      SG_TRY(statement(is_first));
    if (!lexer_.is_sign(";")) break;
    SG_TRY(lexer_.advance());
  }
  if (lexer_.peek().kind == FxTokenKind::comment) {
    FxModule* module = innermost();
    const FxStatement& last = module->statements.back();
    uint32_t target = last.target_count == 0 ? last.value : file_->targets[last.first_target];
    if (target != kNoFx) file_->described.push_back({target, comment_text(lexer_.peek().text)});
    SG_TRY(lexer_.advance());
  }
  if (lexer_.peek().kind != FxTokenKind::end_of_line) return lexer_.unexpected("the end of the statement");
  return ok_status();
}

// --- statements ---

Status FxParser::statement(bool is_first) {
  FxStatement s;
  s.is_first = is_first;
  s.at = lexer_.peek().at;
  s.context = context_;
  s.first_target = static_cast<uint32_t>(file_->targets.size());
  if (lexer_.is_name("return")) SG_TRY(returned(&s));
  else if (lexer_.is_name("pass")) SG_TRY(lexer_.advance());
  else SG_TRY(assignment(&s));
  s.target_count = static_cast<uint32_t>(file_->targets.size()) - s.first_target;
  innermost()->statements.push_back(s);
  return ok_status();
}

Status FxParser::returned(FxStatement* s) {
  s->kind = FxStatementKind::returns;
  SG_TRY(lexer_.advance());
  if (lexer_.peek().kind == FxTokenKind::end_of_line) return s->value = add_none(s->at), ok_status();
  SG_ASSIGN(s->value, expression());
  if (!lexer_.is_sign(",")) return ok_status();
  std::vector<uint32_t> items{s->value};  // return a, b
  while (lexer_.is_sign(",")) {
    SG_TRY(lexer_.advance());
    if (lexer_.peek().kind == FxTokenKind::end_of_line) break;
    SG_ASSIGN(uint32_t item, expression());
    items.push_back(item);
  }
  SG_ASSIGN(s->value, add(FxKind::tuple, s->at, {}, items));
  return ok_status();
}

// x: T;  x: T = v;  x = v;  a = b = None;  a, b, = v;  x += v;  x[i] = v;  v
Status FxParser::assignment(FxStatement* s) {
  SG_ASSIGN(uint32_t first, expression());
  for (std::string_view sign : kCompound) {
    if (!lexer_.is_sign(sign)) continue;
    s->kind = FxStatementKind::change;
    file_->targets.push_back(first);
    SG_TRY(lexer_.advance());
    SG_ASSIGN(s->value, expression());
    return ok_status();
  }
  if (lexer_.is_sign(":")) {
    s->kind = FxStatementKind::declare;
    SG_TRY(lexer_.advance());
    SG_ASSIGN(s->annotation, expression());
    if (!lexer_.is_sign("=")) return file_->targets.push_back(first), ok_status();
  }
  if (!lexer_.is_sign("=") && !lexer_.is_sign(",")) return s->value = first, ok_status();
  s->kind = FxStatementKind::assign;
  file_->targets.push_back(first);
  while (lexer_.is_sign(",")) {
    SG_TRY(lexer_.advance());
    if (lexer_.is_sign("=")) break;
    SG_ASSIGN(uint32_t target, expression());
    file_->targets.push_back(target);
  }
  while (lexer_.is_sign("=")) {
    if (s->value != kNoFx) file_->targets.push_back(s->value);
    SG_TRY(lexer_.advance());
    SG_ASSIGN(s->value, expression());
  }
  if (s->value == kNoFx) return lexer_.unexpected("`=`");
  if (file_->expr(first).kind == FxKind::subscript) s->kind = FxStatementKind::change;
  return ok_status();
}

namespace {

// Names and texts of a graph are UTF-8; reports the first line that is not.
Status check_characters(const FxText& text) {
  const std::string_view whole = text.whole.substr(text.begin, text.end - text.begin);
  if (is_utf8(whole)) return ok_status();
  for (size_t begin = 0; begin < whole.size();) {
    const size_t end = std::min(whole.find('\n', begin), whole.size());
    if (!is_utf8(whole.substr(begin, end - begin)))
      return text.error(text.begin + begin, "the line is not valid UTF-8",
                        "the text is damaged, or in another encoding");
    begin = end + 1;
  }
  return ok_status();
}

}  // namespace

Result<FxFile> parse_fx(const FxText& text) {
  SG_TRY(check_characters(text));
  if (text.end >= std::numeric_limits<uint32_t>::max() - 16)
    return Error{ErrorKind::unreadable, "the text is larger than 4 GiB", {text.file}, {}};
  FxFile file;
  file.text = &text;
  SG_TRY(FxParser(text, &file).read_file());
  return file;
}

Result<uint32_t> parse_fx_expression(FxFile* file, std::string_view part) {
  FxText text = *file->text;
  text.begin = static_cast<size_t>(part.data() - text.whole.data());
  text.end = text.begin + part.size();
  return FxParser(text, file).whole_expression();
}

}  // namespace sg
