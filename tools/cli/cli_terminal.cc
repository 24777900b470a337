#include "tools/cli/cli_terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace sg::cli {
namespace {

constexpr long kNarrowest = 40, kWidest = 10000;

size_t indent_of(std::string_view line, size_t columns) {
  const size_t first = std::min(line.find_first_not_of(' '), line.size());
  const size_t gap = line.find("  ", first);
  const size_t second = gap == std::string_view::npos ? gap : line.find_first_not_of(' ', gap);
  const size_t indent = second == std::string_view::npos ? first : second;
  return indent > columns / 2 ? first : indent;
}

std::string folded_line(std::string_view line, size_t columns) {
  const size_t indent = indent_of(line, columns);
  std::string out(line.substr(0, indent));
  size_t width = indent;
  for (size_t at = indent; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    const std::string_view word = line.substr(at, end - at);
    if (width > indent && width + 1 + word.size() > columns) {
      out += '\n' + std::string(indent, ' ');
      width = indent;
    } else if (width > indent) {
      out += ' ';
      ++width;
    }
    out += word;
    width += word.size();
    at = end + 1;
  }
  return out;
}

}  // namespace

std::optional<size_t> terminal_columns() {
  const char* text = std::getenv("COLUMNS");
  long columns = text != nullptr ? std::strtol(text, nullptr, 10) : 0;
  winsize size{};
  if (columns <= 0 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  if (columns < kNarrowest || columns > kWidest) return std::nullopt;
  return static_cast<size_t>(columns);
}

bool shows_color(int descriptor, std::string_view when) {
  if (when != "auto") return when == "always";
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if (no_color != nullptr && *no_color != 0) return false;
  return (term == nullptr || std::string_view(term) != "dumb") && ::isatty(descriptor) != 0;
}

std::string folded(std::string_view text, size_t columns) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    out += line.size() > columns ? folded_line(line, columns) : std::string(line);
    if (end < text.size()) out += '\n';
    at = end + 1;
  }
  return out;
}

}  // namespace sg::cli
