// Reporter: everything a tool says on standard error, in the format that the user asked for.
//
// text     `sg-print: file:line:col: error: message [rule]`, the source line with a caret, `hint:` lines
// github   one workflow command a message
// json     one document at the end: {"schema":"sg-diagnostics","version":1,"tool","diagnostics":[...],"hidden"}
// sarif    one SARIF 2.1.0 document at the end
// Bytes of an input never reach a terminal raw: control characters are shown as \xNN.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/diag.h"
#include "libgraph/base/result.h"

namespace sg::cli {

enum class ErrorFormat : uint8_t { text, json, sarif, github };

class Reporter {
 public:
  explicit Reporter(std::string_view tool) : tool_(tool) {}

  void set_format(std::string_view name);         // one of text, json, sarif, github
  void set_color(std::string_view when);          // auto, always, never; NO_COLOR and TERM=dumb count for auto
  void set_quiet(bool quiet) { quiet_ = quiet; }  // errors only
  void set_verbose(size_t level) { verbose_ = level; }

  void add(const Diagnostic& d);
  void add(const Diagnostics& list);  // and how many it hid
  void error(const Error& error);
  void note(const std::string& message);  // summaries, what --explain says; silent when quiet
  void line(const std::string& text);     // as it is, in text format only; silent when quiet

  // With --verbose: what a phase of the work was about, and how long it took since the last one ended.
  void phase(std::string_view name, const std::string& what);
  // The same of a phase that took `seconds`; what has passed beyond them belongs to the next.
  void phase(std::string_view name, const std::string& what, double seconds);

  // The same of a phase that goes on: how far it has come. Nothing within a second of what was said last.
  void progress(std::string_view name, const std::string& what);

  void finish();  // writes the document of json and sarif

  const std::string& tool() const { return tool_; }

 private:
  void timed(std::string_view name, const std::string& what, double seconds);
  double phase_seconds() const;

  std::string tool_;
  ErrorFormat format_ = ErrorFormat::text;
  bool color_ = false;
  bool quiet_ = false;
  size_t verbose_ = 0;
  std::chrono::steady_clock::time_point phase_began_ = std::chrono::steady_clock::now(), last_said_ = phase_began_;
  size_t hidden_ = 0;
  std::vector<Diagnostic> kept_;  // json and sarif: until finish
};

// A path as a relative URI reference: everything but unreserved characters and `/` in percent form.
std::string uri_of(std::string_view path);

// The message formats, one function each.
std::string as_text(const std::string& tool, const Diagnostic& d, bool color);
std::string as_github(const Diagnostic& d);
std::string as_json(const std::string& tool, const std::vector<Diagnostic>& list, size_t hidden);
std::string as_sarif(const std::string& tool, const std::vector<Diagnostic>& list);

}  // namespace sg::cli
