// --help, --help-all, --version and the usage lines, all generated from the tables.
#include <algorithm>

#include "libgraph/binary/binary.h"
#include "tools/cli/cli.h"
#include "tools/cli/cli_terminal.h"

namespace sg::cli {
namespace {

constexpr std::string_view kLastInHelp = "version";  // of the common options; the rest is in --help-all
constexpr size_t kHelpColumn = 30;
constexpr size_t kHelpWidth = 115;

std::string usage_line(const Tool& tool) {
  return "Usage: " + std::string(tool.name) + " [OPTION]... " + std::string(tool.operands) + "\n";
}

std::string option_line(const Option& o) {
  std::string left = o.letter != 0 ? std::string("  -") + o.letter + ", " : "      ";
  left += "--" + std::string(o.name);
  if (!o.argument.empty()) left += " " + std::string(o.argument);
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

constexpr ExitCode kUsualExitCodes[] = {
    {0, "yes", "yes: done"},
    {1, "no (a finding)", "no: it ran, and the answer is no (a finding, a difference, a limit that is exceeded)"},
    {2, "usage", "usage: a wrong option or argument"},
    {3, "input unreadable", "an input cannot be read"},
    {4, "cannot apply", "what was asked cannot be applied to this input"},
    {5, "resources", "a resource is missing: memory, disk, a device"},
    {6, "a rank failed", "a rank failed"},
    kInternalError};

std::string exit_line(const Tool& tool) {
  std::string out = "Exit status:";
  for (const ExitCode& e : exit_codes_of(tool)) {
    const std::string words = std::to_string(e.code) + " " + std::string(e.shortly);
    const size_t line = out.size() - (out.rfind('\n') + 1);
    out += (line + words.size() + 2 > kHelpWidth ? "\n" : " ") + words + (e.code == kInternalError.code ? ".\n" : ",");
  }
  return out;
}

}  // namespace

std::span<const ExitCode> exit_codes_of(const Tool& tool) {
  return tool.exit_codes.empty() ? std::span<const ExitCode>(kUsualExitCodes) : tool.exit_codes;
}

std::string help_text(const Tool& tool, bool all) {
  std::string out = usage_line(tool) + std::string(tool.name) + ": " + std::string(tool.summary) + ".\n";
  if (!tool.details.empty()) out += "\n" + std::string(tool.details) + "\n";
  if (!tool.options.empty()) out += "\nOptions:\n" + option_lines(tool.options);
  out += "\nCommon options" + std::string(all ? ":\n" : " (--help-all lists the rest):\n");
  std::vector<Option> common = useful_common_options(tool);
  if (!all) common.erase(std::ranges::find(common, kLastInHelp, &Option::name) + 1, common.end());
  out += option_lines(common) + "\n" + exit_line(tool);
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
