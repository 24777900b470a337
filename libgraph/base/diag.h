// Diagnostics: findings that are collected instead of returned, so that a user sees all of them at once.
//
// The parser, the importers and the verifier report here and go on; tools print the list (tools/cli/cli) with the
// source line and a caret. The list is capped: what was hidden is counted.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "libgraph/base/result.h"

namespace sg {

enum class Severity : uint8_t { error, warning, note };

struct Diagnostic {
  Severity severity = Severity::error;
  std::string rule;     // stable id, e.g. "order", "parse-type"; printed in brackets
  std::string message;  // lower-case start, no full stop
  Location where;
  std::string hint;         // the remedy; may be empty
  std::string source_line;  // the offending line of a text input, for the caret; may be empty
};

class Diagnostics {
 public:
  explicit Diagnostics(size_t max_errors = 20) : max_errors_(max_errors) {}

  void add(Diagnostic d);
  void error(std::string rule, std::string message, Location where = {}, std::string hint = {});
  void warning(std::string rule, std::string message, Location where = {}, std::string hint = {});
  void note(std::string message, Location where = {});
  void add(const Diagnostics& others);  // in their order; what they hid stays counted

  const std::vector<Diagnostic>& list() const { return list_; }
  bool has_errors() const { return error_count_ != 0; }
  size_t error_count() const { return error_count_; }  // hidden ones included
  size_t hidden() const { return hidden_; }            // errors not kept, because of the cap
  size_t max_errors() const { return max_errors_; }
  bool full() const { return error_count_ >= max_errors_; }

  // The first error as an Error of the given kind, "and N more" appended. REQUIRES: has_errors()
  Error as_error(ErrorKind kind) const;

 private:
  std::vector<Diagnostic> list_;
  size_t max_errors_;
  size_t error_count_ = 0;
  size_t hidden_ = 0;
};

}  // namespace sg
