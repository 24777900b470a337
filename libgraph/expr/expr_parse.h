// Internal to the readers of expressions and guards: a recursive descent over one text.
//
// On the first error `error` is set, with its column, and every later call returns an invalid Poly.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "libgraph/expr/expr_builder.h"

namespace sg {

class ExprParser {
 public:
  ExprParser(ExprPool& pool, std::string_view text);

  Poly sum();
  // sum(), interned. Overflow, division by zero and too large an expansion are errors here.
  Expr expression();

  void skip_spaces();
  bool at_end();
  bool accept(std::string_view token);  // skips spaces before it
  bool expect(std::string_view token);  // an error when it is not there
  std::string_view peek_name();         // the identifier at this place, without moving; may be empty
  bool rest_starts_with(std::string_view token) const { return text_.substr(position_).starts_with(token); }
  void fail(std::string message, std::string hint = {});

  size_t position() const { return position_; }
  void set_position(size_t position) { position_ = position; }
  bool has_error() const { return error_.has_value(); }
  Error take_error() { return std::move(*error_); }

 private:
  Poly product();
  Poly unary();
  Poly power();
  Poly primary();
  Poly call(std::string_view name);
  std::optional<uint64_t> number();

  ExprPool& pool_;
  ExprBuilder builder_;
  std::string_view text_;
  size_t position_ = 0;
  int depth_ = 0;
  std::optional<Error> error_;
};

}  // namespace sg
