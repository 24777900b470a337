// The words of Python source: identifiers, literals, comments, lines. What a name or text holds never becomes code.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace sg::python {

// Whether `s` is an ASCII identifier that is no keyword of Python.
bool is_identifier(std::string_view s);

// "a.b_c": identifiers with dots between.
bool is_dotted_name(std::string_view s);

// A string literal: escaped so that any bytes are one line of valid source; bytes that are not UTF-8 become surrogates,
// as Python itself decodes them.
void append_string(std::string_view s, std::string* out);
std::string string_literal(std::string_view s);

// A float that reads back to the same bits; `inf`, `-inf` and `nan` are the names of Python's math module.
std::string float_literal(double v);

// Text of a comment, or of a docstring: what could end it, hide text or turn its direction is escaped.
void append_comment(std::string_view s, std::string* out);
void append_docstring(std::string_view s, std::string* out);

// The names of one scope. Each claim gives an identifier that no other claim gave, near to the one wished for:
// characters that no identifier has become `_`, and `_1`, `_2`, ... tells equal ones apart. Keywords, builtins and
// whatever the outer scope has claimed before are taken.
class Scope {
 public:
  explicit Scope(const Scope* outer = nullptr) : outer_(outer) {}
  std::string claim(std::string_view wish);
  bool is_taken(const std::string& name) const;

 private:
  const Scope* outer_;
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, uint32_t> last_suffix_;  // by the identifier that was wished for
};

// Where a line may be broken: stands for the blank after a comma in what `append_line` gets. No literal holds it.
inline constexpr char kBreak = '\x01';

// One logical line: as it is when it fits into 120 columns, else broken inside of its brackets. Trailing comment with
// two blanks; empty = none.
void append_line(size_t indent, std::string_view code, std::string_view comment, std::string* out);

}  // namespace sg::python
