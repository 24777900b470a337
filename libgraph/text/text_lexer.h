// TextLexer: a cursor over one line of a text at a time, and the parser's errors.
//
// Nothing is tokenised ahead: the grammar decides what may stand at the cursor and asks for it. Each reading function
// skips blanks first; those that return bool report the error themselves when they return false.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/diag.h"
#include "libgraph/text/text_words.h"

namespace sg::text {

class TextLexer {
 public:
  TextLexer(std::string_view text, std::string file);

  // --- lines ---
  bool next_line();  // to the next line that holds something; false = there is none
  uint32_t line() const { return line_; }
  bool at_end();  // nothing but a comment is left in this line
  bool expect_end();
  void skip_line() { cursor_ = end_; }

  // --- characters and words ---
  char peek();  // 0 = at_end (or a NUL byte, which no rule accepts)
  bool next_is(std::string_view s);
  bool take(char c);
  bool expect(char c, std::string_view where);  // "`)` after the arguments"
  const char* cursor() const { return cursor_; }
  const char* end() const { return end_; }
  void back_to(const char* position) { cursor_ = position; }

  template <bool (*is_char)(char)>
  std::string_view span() {  // the longest run of such characters; may be empty
    skip_blanks();
    const char* begin = cursor_;
    while (cursor_ < end_ && is_char(*cursor_)) ++cursor_;
    return {begin, static_cast<size_t>(cursor_ - begin)};
  }
  std::string_view word() { return span<is_word_char>(); }
  std::string_view peek_word();

  // A run of such characters, or a string in quotes. `what`: "a module name". `*quoted` tells them apart.
  template <bool (*is_char)(char)>
  bool text(std::string_view what, std::string_view* out, bool* quoted = nullptr) {
    bool is_quoted = peek() == '"';
    if (quoted) *quoted = is_quoted;
    if (is_quoted) return string(out);
    *out = span<is_char>();
    return !out->empty() || expected(what);
  }

  // --- literals ---
  bool string(std::string_view* out);        // valid until the next string with an escape
  bool string_ahead(std::string_view* out);  // no error when it is none; the cursor moves past a good one
  bool integer(std::string_view what, int64_t* out);
  bool natural(std::string_view what, uint32_t* out);  // below 2^32 - 1
  bool number_is_float();  // at a number: does it have a point or exponent (or is it inf, nan)?
  bool floating(double* out);
  bool json(std::string* out);             // compact spelling appended
  bool expression(std::string_view* out);  // the longest text that can be one; not yet checked

  // --- errors; each returns false ---
  bool error(std::string_view rule, std::string message, std::string hint = {});  // at the cursor
  bool error_at(const char* at, std::string_view rule, std::string message, std::string hint = {});
  bool error_on(uint32_t line, const char* at, std::string_view rule, std::string message, std::string hint = {});
  bool expected(std::string_view what, std::string hint = {});  // "expected `=`, found `(`"
  std::string found();                                          // "`(`", "the end of the line"
  size_t error_count() const { return errors_.size(); }
  bool gave_up() const { return errors_.size() >= kMaxErrors; }
  void warning_at(const char* at, std::string_view rule, std::string message, std::string hint = {});
  // Everything found so far, by place, handed over.
  void report(Diagnostics* diagnostics);

 private:
  static constexpr size_t kMaxErrors = 400;  // past this the rest of the text is not read
  static constexpr size_t kLongestLine = 4000;

  void skip_blanks() {
    while (cursor_ < end_ && (*cursor_ == ' ' || *cursor_ == '\t')) ++cursor_;
  }
  bool operand(const char** at);
  bool balanced(const char** at);
  bool escape(const char** at, std::string* out);
  Diagnostic diagnostic(Severity severity, uint32_t line, const char* at, std::string_view rule, std::string message,
                        std::string hint) const;

  std::string_view text_;
  std::string file_;
  const char* cursor_;
  const char* end_;   // of the line, without its line break
  const char* next_;  // where the next line begins
  uint32_t line_ = 0;
  std::string unescaped_;
  std::vector<Diagnostic> errors_, warnings_;
};

}  // namespace sg::text
