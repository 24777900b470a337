// FxParser: recursive descent over FxLexer's tokens. Internal to fx_parse*.cc.
#pragma once

#include "libgraph/import/fx_lexer.h"
#include "libgraph/import/fx_parse.h"

namespace sg {

class FxParser {
 public:
  FxParser(const FxText& text, FxFile* file) : lexer_(text), file_(file) {}

  Status read_file();
  Result<uint32_t> whole_expression();

 private:
  // --- lines (fx_parse.cc) ---
  Status read_line();
  Status class_header();
  Status function_header();
  Status parameter(FxModule* module);
  Status statement_line();
  Status close_modules(uint32_t indent);
  Status check_end(const FxModule& module) const;
  FxModule* innermost() { return open_.empty() ? nullptr : &file_->modules[open_.back().module]; }

  // --- statements (fx_parse.cc) ---
  Status statement(bool is_first);
  Status assignment(FxStatement* s);
  Status returned(FxStatement* s);

  // --- expressions (fx_parse_expr.cc) ---
  Result<uint32_t> expression(int level = 0);
  Result<uint32_t> unary();
  Result<uint32_t> postfix();
  Result<uint32_t> atom();
  Result<uint32_t> name();
  Result<uint32_t> bracketed(std::string_view close, FxKind kind);
  Result<uint32_t> braces();
  Result<uint32_t> call(uint32_t callee);
  Result<uint32_t> subscript(uint32_t container);
  Result<uint32_t> slice_or_index();
  Result<std::string_view> binary_sign(int level);
  Status descriptors(uint32_t expr);  // comments within brackets
  Status skip_comments();
  Result<uint32_t> add(FxKind kind, uint32_t at, std::string_view text, const std::vector<uint32_t>& children = {});
  uint32_t add_none(uint32_t at);

  bool take(std::string_view sign, Status* status);
  Status expect(std::string_view sign, std::string_view where);
  Error too_deep(size_t at) const;

  struct Open {
    uint32_t module;
    uint32_t class_indent, body_indent;  // body_indent: of the function's lines, once known
    bool in_function = false;
  };

  FxLexer lexer_;
  FxFile* file_;
  std::vector<Open> open_;  // classes around this line
  uint32_t context_ = kNoFx;
  uint32_t nesting_ = 0;
};

}  // namespace sg
