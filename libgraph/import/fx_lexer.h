// FxLexer: tokens of the Python that FX prints, line by line. Internal to the importers.
//
// The parser takes a line when it wants one, and tokens within it; an open bracket joins lines. What PyTorch's logging
// writes before each line ("V1121 02:33:03.218000 13001 file.py:10] [0/0] [__graph] ") is no part of the line.
#pragma once

#include <optional>
#include <string_view>

#include "libgraph/import/fx_syntax.h"

namespace sg {

enum class FxTokenKind : uint8_t { end_of_line, name, integer, floating, imaginary, string, sign, comment };

struct FxToken {
  FxTokenKind kind = FxTokenKind::end_of_line;
  uint32_t at = 0;
  std::string_view text;
};

class FxLexer {
 public:
  explicit FxLexer(const FxText& text);

  // --- lines ---
  bool next_line();  // to the next line that is not blank; false = there is none
  uint32_t indent() const { return indent_; }
  std::string_view rest_of_line() const;
  size_t offset() const { return cursor_; }
  void skip_line();

  // --- tokens; an error ends all ---
  const FxToken& peek() const { return token_; }
  Status advance();
  Status start_line() { return advance(); }  // reads the first token
  void open() { ++open_brackets_; }          // lines do not end until the bracket is closed
  void close() { --open_brackets_; }
  bool is_sign(std::string_view s) const { return token_.kind == FxTokenKind::sign && token_.text == s; }
  bool is_name(std::string_view s) const { return token_.kind == FxTokenKind::name && token_.text == s; }
  Error unexpected(std::string_view wanted) const;
  const FxText& text() const { return text_; }

  // `<...>` beginning at the token, as one; false when it is none.
  bool take_angled(std::string_view* out);

 private:
  void skip_log_prefix();
  void skip_blanks();
  void begin_line();  // past the prefix and blanks at the line's beginning
  char at(size_t i) const { return i < text_.end ? text_.whole[i] : '\0'; }
  bool at_new_line(size_t i) const { return i >= text_.end || text_.whole[i] == '\n'; }
  Status number();
  Status string(size_t quote);
  FxToken make(FxTokenKind kind, size_t begin) const;

  const FxText& text_;
  size_t cursor_;
  uint32_t indent_ = 0;
  int open_brackets_ = 0;
  bool has_begun_ = false;
  FxToken token_;
};

}  // namespace sg
