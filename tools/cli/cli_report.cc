// The Reporter and its human-readable format; the machine formats are in cli_report_machine.cc.
#include "tools/cli/cli_report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "tools/cli/cli_terminal.h"

namespace sg::cli {
namespace {

constexpr size_t kExcerptColumns = 100;  // of a source line; longer ones are cut around the caret
// Of a message line; longer ones (endless names or lists) lose their middle.
constexpr size_t kLineBytes = 1000;

// Failures are ignored: there is nowhere else to report them.
void write_stderr(std::string_view text) {
  while (!text.empty()) {
    ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

std::string visible(std::string_view s) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (char c : s) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '\t') {
      out += ' ';
    } else if (byte < 0x20 || byte == 0x7f) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out;
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// A message line as shown; its end is kept, as it says what is wrong.
std::string shown(std::string_view s) {
  if (s.size() <= kLineBytes) return visible(s);
  size_t head = kLineBytes * 2 / 3, tail = s.size() - kLineBytes / 4;
  while (continues_character(s[head])) --head;
  while (tail < s.size() && continues_character(s[tail])) ++tail;
  return visible(s.substr(0, head)) + " [... " + std::to_string(tail - head) + " bytes ...] " + visible(s.substr(tail));
}

// The begin and end of the shown part of `line`: kExcerptColumns bytes around `at`, at character boundaries.
std::pair<size_t, size_t> excerpt(std::string_view line, size_t at) {
  if (line.size() <= kExcerptColumns) return {0, line.size()};
  size_t begin = std::min(at > kExcerptColumns / 2 ? at - kExcerptColumns / 2 : 0, line.size() - kExcerptColumns);
  size_t end = begin + kExcerptColumns;
  while (begin < at && continues_character(line[begin])) ++begin;
  while (end < line.size() && continues_character(line[end])) ++end;
  return {begin, end};
}

std::string source_with_caret(const Diagnostic& d, bool color) {
  std::string_view line = d.source_line;
  size_t at = std::min<size_t>(d.where.column == 0 ? 0 : d.where.column - 1, line.size());
  auto [begin, end] = excerpt(line, at);
  std::string before = (begin > 0 ? "..." : "") + visible(line.substr(begin, at - begin));
  std::string out = "  " + before + visible(line.substr(at, end - at)) + (end < line.size() ? "...\n" : "\n");
  if (d.where.column == 0) return out;
  auto columns = std::count_if(before.begin(), before.end(), [](char c) { return !continues_character(c); });
  out += "  " + std::string(static_cast<size_t>(columns), ' ');
  return out + (color ? "\x1b[32m^\x1b[0m\n" : "^\n");
}

std::string colored(std::string_view word, std::string_view code, bool color) {
  return color ? "\x1b[" + std::string(code) + "m" + std::string(word) + "\x1b[0m" : std::string(word);
}

std::string severity_word(Severity severity, bool color) {
  switch (severity) {
    case Severity::error: return colored("error:", "1;31", color);
    case Severity::warning: return colored("warning:", "1;35", color);
    case Severity::note: break;
  }
  return colored("note:", "1;36", color);
}

// Lines after the first are indented, so that they never look like messages; other line breaks become \x0a. `mark`
// stands behind the first.
std::string shown_lines(const std::string& text, const std::string& mark) {
  size_t end = std::min(text.find("\n  "), text.size());
  std::string out = shown(text.substr(0, end)) + mark + "\n";
  while (end < text.size()) {
    const size_t begin = end + 1;
    end = std::min(text.find("\n  ", begin), text.size());
    const std::string line = shown(text.substr(begin, end - begin));
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

}  // namespace

std::string as_text(const std::string& tool, const Diagnostic& d, bool color) {
  std::string out = tool + ": ";
  std::string where = shown(print_location(d.where));
  if (!where.empty()) out += where + ": ";
  out += severity_word(d.severity, color) + " " + shown_lines(d.message, d.rule.empty() ? "" : " [" + d.rule + "]");
  if (!d.source_line.empty()) out += source_with_caret(d, color);
  if (!d.hint.empty()) out += tool + ": " + colored("hint:", "1;36", color) + " " + shown_lines(d.hint, "");
  return out;
}

void Reporter::set_format(std::string_view name) {
  format_ = name == "json"     ? ErrorFormat::json
            : name == "sarif"  ? ErrorFormat::sarif
            : name == "github" ? ErrorFormat::github
                               : ErrorFormat::text;
}

void Reporter::set_color(std::string_view when) { color_ = shows_color(STDERR_FILENO, when); }

void Reporter::add(const Diagnostic& d) {
  if (quiet_ && d.severity != Severity::error) return;
  if (format_ == ErrorFormat::text) {
    write_stderr(as_text(tool_, d, color_));
  } else if (format_ == ErrorFormat::github) {
    write_stderr(as_github(d));
  } else {
    kept_.push_back(d);
  }
}

void Reporter::add(const Diagnostics& list) {
  for (const Diagnostic& d : list.list()) add(d);
  hidden_ += list.hidden();
  if (list.hidden() != 0) note(std::to_string(list.hidden()) + " more not shown");
}

void Reporter::error(const Error& error) { add({Severity::error, {}, error.message, error.where, error.hint, {}}); }

void Reporter::note(const std::string& message) { add({Severity::note, {}, message, {}, {}, {}}); }

void Reporter::line(const std::string& text) {
  if (!quiet_ && format_ == ErrorFormat::text) write_stderr(text + "\n");
}

void Reporter::phase(std::string_view name, const std::string& what) { phase(name, what, phase_seconds()); }

void Reporter::phase(std::string_view name, const std::string& what, double seconds) {
  phase_began_ +=
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  timed(name, what, seconds);
}

void Reporter::progress(std::string_view name, const std::string& what) {
  if (std::chrono::steady_clock::now() - last_said_ > std::chrono::seconds(1)) timed(name, what, phase_seconds());
}

double Reporter::phase_seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - phase_began_).count();
}

void Reporter::timed(std::string_view name, const std::string& what, double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f s", seconds);
  last_said_ = std::chrono::steady_clock::now();
  if (verbose_ != 0) line(tool_ + ": " + std::string(name) + ": " + what + (what.empty() ? "" : ", ") + text);
}

void Reporter::finish() {
  if (format_ == ErrorFormat::json) write_stderr(as_json(tool_, kept_, hidden_) + "\n");
  if (format_ == ErrorFormat::sarif) write_stderr(as_sarif(tool_, kept_) + "\n");
}

}  // namespace sg::cli
