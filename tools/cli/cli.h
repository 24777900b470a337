// The command line, written once: options, help, streams, messages, exit codes. A tool is a table and a function.
//
//     constexpr Option kOptions[] = {{"node", 'n', "NAME", "print this node only"}};
//     Result<int> run(const Args& args) { ... }
//     constexpr Tool kTool = {.name = "sg-print", .summary = "write a graph as text", ..., .run = run};
//     int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
//
// Options   `--name value`, `--name=value`, `-n value`, `-nvalue`; flags of one letter may be joined (-qv). Any order,
//           `--` ends them, no abbreviations. An option given twice is refused unless its row says `repeated`. `@FILE`
//           stands for the words in FILE.
// Exit      run's value, or the kind of its Error (result.h). 70 with a bundle file for a bug of ours.
// Streams   data goes to standard output, everything else to standard error through the Reporter.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/result.h"
#include "libpasses/pass_option.h"
#include "tools/cli/cli_report.h"

namespace sg::cli {

inline constexpr std::string_view kVersion = "0.1.0";           // of the suite and of each tool; provenance carries it
inline constexpr std::string_view kVersionDate = "2026-11-22";  // on manual pages

using Option = PassOption;  // a pass and its tool have one table

class Args;
struct ValueRequest;  // cli_complete.h

enum class Writes : uint8_t { report, text, graph };

// What an exit code means: shortly for --help, at length for the manual page.
struct ExitCode {
  int code;
  std::string_view shortly, meaning;
};
inline constexpr ExitCode kInternalError = {70, "an internal error (please report it)",
                                            "a bug in the tool; it names a file that holds what a report needs"};

struct Tool {
  std::string_view name;      // "sg-print"
  std::string_view summary;   // one sentence without the full stop
  std::string_view operands;  // "[GRAPH]", as in the usage line
  std::string_view details;   // lines under the summary, each at most 120 columns; may be empty
  size_t max_operands = 1;
  bool reads_stdin = true;         // without an operand it reads standard input
  Writes writes = Writes::report;  // graph: binary unless asked otherwise, and never to a terminal
  bool reads_graph = true;         // else --in-place would replace something of another kind
  bool stops_at_operand = false;   // what follows the first operand is passed on as it is
  std::span<const Option> options = {};
  std::span<const ExitCode> exit_codes = {};  // empty: the usual ones
  Example examples[2] = {};
  Result<int> (*run)(const Args&) = nullptr;
  ErrorKind any_failure = {};                       // the exit code of all failures but bugs; none = each has its own
  std::span<const std::string_view> commands = {};  // what may stand as the first operand, for completions
  void (*values)(const ValueRequest&) = nullptr;    // completes arguments of kinds that only this tool knows
};

// The options that every tool takes; and those of them that do something in `tool`, which its help shows.
std::span<const Option> common_options();
std::vector<Option> useful_common_options(const Tool& tool);

std::span<const ExitCode> exit_codes_of(const Tool& tool);

class Args {
 public:
  Args(const Tool& tool, Reporter& report) : tool_(&tool), report_(&report) {}

  // REQUIRES for each: `name` is in the tool's table or a common option
  bool has(std::string_view name) const;
  size_t count(std::string_view name) const;
  std::string text(std::string_view name) const;                     // the last value, else the row's default
  std::vector<std::string> all(std::string_view name) const;         // in the order given
  int64_t number(std::string_view name, int64_t fallback) const;     // at most INT64_MAX
  uint64_t natural(std::string_view name, uint64_t fallback) const;  // the same number, all 64 bits
  Result<int64_t> bytes(std::string_view name) const;                // of a SIZE; an error names the option

  // Which of the parsed words gave the option its last value.
  size_t word_of(std::string_view name) const;  // REQUIRES: has(name)

  const std::vector<std::string>& operands() const { return operands_; }
  size_t threads() const;  // --jobs; without it, as many as the machine runs at once
  std::string input() const { return operands_.empty() ? "-" : operands_[0]; }
  const Tool& tool() const { return *tool_; }
  Reporter& report() const { return *report_; }
  // The options given, in table order, as they would be typed; for provenance and bug reports.
  std::vector<std::pair<std::string, std::string>> given() const;

 private:
  friend Result<Args> parse_options(const Tool& tool, std::span<const std::string> words, Reporter& report);
  const Tool* tool_;
  Reporter* report_;
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
  std::map<std::string, size_t, std::less<>> words_;
  std::vector<std::string> operands_;
};

Result<Args> parse_options(const Tool& tool, std::span<const std::string> words, Reporter& report);

std::string help_text(const Tool& tool, bool all);  // --help, --help-all
std::string short_help(const Tool& tool);           // the usage lines
std::string version_text(const Tool& tool);         // --version
std::string help_json(const Tool& tool);            // --help-json
std::string help_man(const Tool& tool);             // --help-man: a manual page
std::string help_markdown(const Tool& tool);        // --help-markdown: a section of docs/tools.md

// The alternatives of an option's argument, `a|b`; empty when any text is allowed.
std::vector<std::string_view> choices_of(std::string_view argument);

// A command line, each `@FILE` up to `--` replaced by the words in it.
struct CommandLine {
  std::vector<std::string> words;
  std::vector<std::string> files;  // by word: the file that it stands in; empty = the line itself
};
Result<CommandLine> expand_response_files(const Tool& tool, std::vector<std::string> words);

// --print-config: the value of every option, where it comes from, and the environment that the suite looks at.
std::string config_text(const Args& args, const CommandLine& line);
std::string config_json(const Args& args, const CommandLine& line);

// How `run` ends when it holds a large graph: `return leave(args, code);` ends the process as main() would, but takes
// nothing apart. A million nodes are given back to the system at once instead of one by one.
[[noreturn]] Result<int> leave(const Args& args, int code);

// The whole life of a tool: options, run, messages, exit code.
int main(const Tool& tool, int argc, char** argv);

}  // namespace sg::cli
