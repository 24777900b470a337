// --help, --help-all, --version and the usage lines, all generated from the tables.
#include <algorithm>

#include "libgraph/binary/binary.h"
#include "tools/cli.h"
#include "tools/cli_terminal.h"

namespace sg::cli {
namespace {

constexpr size_t kInHelp = 8;  // common options shown in --help; the rest is in --help-all
constexpr size_t kHelpColumn = 30;

std::string usage_line(const Tool& tool) {
  return "Usage: " + std::string(tool.name) + " [OPTION]... " + std::string(tool.operands) + "\n";
}

std::string option_line(const Option& o) {
  std::string left = o.letter != 0 ? std::string("  -") + o.letter + ", " : "      ";
  left += "--" + std::string(o.name);
  if (!o.argument.empty())
    left += (o.argument.find('|') == std::string_view::npos ? " " : "=") + std::string(o.argument);
  std::string out = left.size() + 2 <= kHelpColumn ? left + std::string(kHelpColumn - left.size(), ' ')
                                                   : left + "\n" + std::string(kHelpColumn, ' ');
  out += o.help;
  if (!o.fallback.empty()) out += " (default: " + std::string(o.fallback) + ")";
  return out + "\n";
}

std::string option_lines(std::span<const Option> options) {
  std::string out;
  for (const Option& o : options) out += option_line(o);
  return out;
}

constexpr std::string_view kExitCodes =
    "Exit status: 0 yes, 1 no (a finding), 2 usage, 3 input unreadable, 4 cannot apply, 5 resources, 6 a rank failed,\n"
    "70 an internal error (please report it).\n";

}  // namespace

std::string help_text(const Tool& tool, bool all) {
  std::string out = usage_line(tool) + std::string(tool.name) + ": " + std::string(tool.summary) + ".\n";
  if (!tool.details.empty()) out += "\n" + std::string(tool.details) + "\n";
  if (!tool.options.empty()) out += "\nOptions:\n" + option_lines(tool.options);
  out += "\nCommon options" + std::string(all ? ":\n" : " (--help-all lists the rest):\n");
  out += option_lines(all ? common_options() : common_options().first(kInHelp));
  out += "\n" + std::string(kExitCodes);
  if (const std::optional<size_t> columns = terminal_columns()) out = folded(out, *columns);
  out += "\nExamples:\n";  // which may be copied as they stand
  for (const Example& e : tool.examples) out += "  # " + std::string(e.what) + "\n  " + std::string(e.command) + "\n";
  return out;
}

std::string short_help(const Tool& tool) { return usage_line(tool) + "Try `" + std::string(tool.name) + " --help`.\n"; }

std::string version_text(const Tool& tool) {
  std::string schema = std::to_string(kSchemaMajor) + "." + std::to_string(kSchemaMinor);
  std::string out = std::string(tool.name) + " (Stepgraph) " + std::string(kVersion) + "\n";
  out += "schema: reads " + std::to_string(kSchemaMajor) + ".x, writes " + schema + "\n";
  out += "build: " SG_BUILD_TYPE ", " SG_COMPILER "\n";
  if (std::string_view(SG_GIT_ID).size() > 0) out += "git: " SG_GIT_ID "\n";
  return out;
}

}  // namespace sg::cli
