// --help-man and --help-markdown: the tables of --help as a manual page and as a section of docs/tools.md.
#include <algorithm>

#include "tools/cli/cli.h"

namespace sg::cli {
namespace {

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    out.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

bool is_as_written(const std::string& line) { return line.starts_with("  "); }  // columns, not sentences

// --- roff ---

std::string roff(std::string_view text) {
  std::string out = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (char c : text) {
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else if (c == '\'') out += "\\(aq";
    else if (c == '`') out += "\\(ga";
    else if (c == '^') out += "\\(ha";
    else if (c == '~') out += "\\(ti";
    else out += c;
  }
  return out;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }

// Capitalized names in italics, literal words in bold.
std::string roff_argument(std::string_view argument) {
  std::string out;
  for (size_t begin = 0; begin < argument.size();) {
    auto is_name = [&](size_t i) { return argument[i] >= 'A' && argument[i] <= 'Z'; };
    size_t end = begin + 1;
    while (end < argument.size() && is_name(end) == is_name(begin)) ++end;
    std::string part = roff(argument.substr(begin, end - begin));
    out += is_name(begin) ? "\\fI" + part + "\\fR" : part;
    begin = end;
  }
  return out;
}

std::string roff_options(std::span<const Option> options) {
  std::string out;
  for (const Option& o : options) {
    out += ".TP\n";
    if (o.letter != 0) out += bold(std::string("-") + o.letter) + ", ";
    out += bold("--" + std::string(o.name));
    if (!o.argument.empty()) out += " " + roff_argument(o.argument);
    out += "\n" + roff(o.help) + ".\n";
    if (!o.fallback.empty()) out += "Default: " + roff(o.fallback) + ".\n";
    if (o.repeated) out += "May be given more than once.\n";
  }
  return out;
}

std::string roff_details(std::string_view details) {
  std::string out;
  bool as_written = false;
  for (const std::string& line : lines_of(details)) {
    const bool is_new = is_as_written(line) != as_written;
    if (is_new) out += as_written ? ".fi\n" : out.empty() ? ".nf\n" : ".PP\n.nf\n";
    as_written = is_as_written(line);
    if (!line.empty()) out += (is_new && !as_written ? ".PP\n" : "") + roff(line) + "\n";
    else if (!is_new) out += ".PP\n";
  }
  return out + (as_written ? ".fi\n" : "");
}

// --- markdown ---

std::string in_cell(std::string_view text) {
  std::string out;
  for (char c : text) out += c == '|' ? std::string("\\|") : c == '<' ? "&lt;" : std::string(1, c);
  return out;
}

std::string markdown_options(std::span<const Option> options) {
  std::string out = "| option | |\n|---|---|\n";
  for (const Option& o : options) {
    std::string written = o.letter != 0 ? std::string("-") + o.letter + ", --" : std::string("--");
    written += std::string(o.name) + (o.argument.empty() ? "" : " " + std::string(o.argument));
    out += "| `" + in_cell(written) + "` | " + in_cell(o.help);
    if (!o.fallback.empty()) out += " (default: `" + in_cell(o.fallback) + "`)";
    out += std::string(o.repeated ? "; may be repeated" : "") + " |\n";
  }
  return out;
}

std::string markdown_details(std::string_view details) {
  std::string out;
  bool as_written = false;
  for (const std::string& line : lines_of(details)) {
    if (is_as_written(line) != as_written) out += "```\n";
    as_written = is_as_written(line);
    out += line + "\n";
  }
  return out + (as_written ? "```\n" : "");
}

}  // namespace

std::string help_man(const Tool& tool) {
  std::string title(tool.name);
  std::ranges::transform(title, title.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  std::string out = ".\\\" Written by " + std::string(tool.name) + " --help-man.\n";
  out += ".TH " + title + " 1 " + std::string(kVersionDate) + " \"Stepgraph " + std::string(kVersion) +
         "\" \"Stepgraph\"\n";
  out += ".SH NAME\n" + std::string(tool.name) + " \\- " + roff(tool.summary) + "\n";
  out += ".SH SYNOPSIS\n" + bold(tool.name) + " [\\fIOPTION\\fR]... " + roff_argument(tool.operands) + "\n";
  if (!tool.details.empty()) out += ".SH DESCRIPTION\n" + roff_details(tool.details);
  if (!tool.options.empty()) out += ".SH OPTIONS\n" + roff_options(tool.options);
  out += ".SH COMMON OPTIONS\n" + roff_options(useful_common_options(tool));
  out += ".SH EXIT STATUS\n";
  for (const ExitCode& e : exit_codes_of(tool))
    out += ".TP\n" + bold(std::to_string(e.code)) + "\n" + roff(e.meaning) + ".\n";
  out += ".SH EXAMPLES\n";
  for (const Example& e : tool.examples) out += ".TP\n" + roff(e.what) + ":\n.EX\n" + roff(e.command) + "\n.EE\n";
  const bool is_front = tool.stops_at_operand;
  out += ".SH SEE ALSO\n";
  if (!is_front) return out + ".BR stepgraph (1)\n";
  std::string last;
  for (std::string_view c : tool.commands) {
    if (c == "completions" || c == "help") continue;
    if (!last.empty()) out += ".BR " + last + " (1),\n";
    last = "sg\\-" + std::string(c);
  }
  return out + ".BR " + last + " (1)\n";
}

std::string help_markdown(const Tool& tool) {
  std::string name(tool.name), out = "## " + name + "\n\n" + name + ": " + in_cell(tool.summary) + ".\n\n";
  out += "    " + name + " [OPTION]... " + std::string(tool.operands) + "\n\n";
  if (!tool.details.empty()) out += markdown_details(tool.details) + "\n";
  if (!tool.options.empty()) out += markdown_options(tool.options) + "\n";
  if (tool.stops_at_operand) out += "### Options of every tool\n\n" + markdown_options(common_options()) + "\n";
  for (const Example& e : tool.examples) out += "    " + std::string(e.command) + "    # " + std::string(e.what) + "\n";
  return out + "\n";
}

}  // namespace sg::cli
