// The life of a tool: streams, options, run, messages, exit code; and the handling of internal errors.
#include "tools/cli/cli.h"

#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <new>
#include <optional>

#include "libgraph/base/output_file.h"
#include "libgraph/base/sha256.h"
#include "tools/cli/cli_complete.h"
#include "tools/cli/cli_input.h"
#include "tools/cli/cli_memory.h"
#include "tools/cli/cli_output.h"
#include "tools/cli/cli_write.h"

namespace sg::cli {
namespace {

// --help and --version take precedence over everything else on the line, including mistakes.
std::optional<std::string> answer(const Tool& tool, const std::vector<std::string>& words) {
  if (!words.empty() && words[0] == "--complete") return completion_answer(tool, {words.begin() + 1, words.end()});
  for (const std::string& word : words) {
    if (word == "--" || (tool.stops_at_operand && !word.starts_with('-'))) break;
    if (word == "--help" || word == "-h") return help_text(tool, false);
    if (word == "--help-all") return help_text(tool, true);
    if (word == "--help-json") return help_json(tool);
    if (word == "--help-man") return help_man(tool);
    if (word == "--help-markdown") return help_markdown(tool);
    if (word == "--version" || word == "-V") return version_text(tool);
  }
  return std::nullopt;
}

// The same of words that only parsing takes apart (-qh), and of those of an @FILE.
std::optional<std::string> answer(const Args& args) {
  const Tool& tool = args.tool();
  if (args.has("help")) return help_text(tool, false);
  if (args.has("help-all")) return help_text(tool, true);
  if (args.has("help-json")) return help_json(tool);
  if (args.has("help-man")) return help_man(tool);
  if (args.has("help-markdown")) return help_markdown(tool);
  if (args.has("version")) return version_text(tool);
  return std::nullopt;
}

// The message format must be known before options are parsed: usage errors are messages too.
void set_format_early(const std::vector<std::string>& words, Reporter& report) {
  constexpr std::string_view kName = "--error-format";
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i] == kName && i + 1 < words.size()) report.set_format(words[i + 1]);
    if (words[i].starts_with(std::string(kName) + "=")) report.set_format(words[i].substr(kName.size() + 1));
  }
}

std::string bundle_text(const Tool& tool, const std::vector<std::string>& words, const std::string& what) {
  std::string out = version_text(tool) + "error: " + what + "\narguments:\n";
  for (const std::string& word : words) {
    out += "  " + word;
    if (word != "-" && ::access(word.c_str(), R_OK) == 0) {
      Result<Bytes> bytes = read_bytes(word);
      if (bytes.ok()) out += "  # " + std::to_string(bytes->data.size()) + " bytes, " + sha256_tag(bytes->data);
    }
    out += "\n";
  }
  return out;
}

// Writes the information needed to report an internal error to a file. Returns its path; empty if no folder is
// writable.
std::string write_bundle(const Tool& tool, const std::vector<std::string>& words, const std::string& what) {
  std::string text = bundle_text(tool, words, what);
  std::string name = std::string(tool.name) + "-bug-" + std::to_string(::getpid()) + ".txt";
  const char* temporary = std::getenv("TMPDIR");
  for (const std::string& path : {name, std::string(temporary != nullptr ? temporary : "/tmp") + "/" + name}) {
    Result<OutputFile> file = OutputFile::open(path);
    if (file.ok() && file->write(text).ok() && file->close().ok() && file->commit().ok()) return path;
  }
  return {};
}

Error our_bug(const Tool& tool, const std::vector<std::string>& words, const Error& error) {
  std::string path = write_bundle(tool, words, error.message);
  std::string hint = path.empty() ? "please report it with the command line and the input"
                                  : "please report it with " + path + " and the input";
  return {ErrorKind::internal, "internal error: " + error.message + "; this is a bug", error.where, hint};
}

Result<int> guarded_run(const Tool& tool, const Args& args) {
  try {
    SG_TRY(check_output(args));
    return tool.run(args);
  } catch (const std::bad_alloc&) {
    return Error{ErrorKind::missing, "out of memory", {}, "use a machine with more memory, or a smaller graph"};
  } catch (const std::exception& e) {
    return Error{ErrorKind::internal, e.what(), {}, {}};
  }
}

int code_of(const Tool& tool, const Error& error) {
  const bool is_any = error.kind != ErrorKind::internal && tool.any_failure != ErrorKind();
  return static_cast<int>(is_any ? tool.any_failure : error.kind);
}

// Writes to standard output what was requested instead of a run.
int say_or_fail(const Tool& tool, const std::string& text, Reporter& report) {
  Status written = write_whole("-", text);
  if (!written.ok()) report.error(written.error());
  return written.ok() ? 0 : code_of(tool, written.error());
}

int run_line(const Tool& tool, const CommandLine& line, Reporter& report) {
  Result<Args> args = parse_options(tool, line.words, report);
  if (!args.ok()) {
    report.error(args.error());
    return code_of(tool, args.error());
  }
  report.set_color(args->text("color"));
  report.set_quiet(args->has("quiet"));
  report.set_verbose(args->count("verbose"));
  if (const std::optional<std::string> text = answer(*args)) return say_or_fail(tool, *text, report);
  if (args->has("completions")) {
    const std::string name(tool.name);
    return say_or_fail(tool, completion_script({&name, 1}, args->text("completions")), report);
  }
  if (args->has("print-config"))
    return say_or_fail(tool, args->has("json") ? config_json(*args, line) : config_text(*args, line), report);
  if (tool.reads_stdin && args->operands().empty() && ::isatty(STDIN_FILENO) != 0) {
    report.error({ErrorKind::usage, "no input", {}, "name a file, or - for standard input"});
    report.line(short_help(tool));
    return static_cast<int>(ErrorKind::usage);
  }
  Result<int> code = guarded_run(tool, *args);
  if (code.ok()) return *code;
  report.error(code.error().kind == ErrorKind::internal ? our_bug(tool, line.words, code.error()) : code.error());
  return code_of(tool, code.error());
}

}  // namespace

Result<int> leave(const Args& args, int code) {
  args.report().finish();
  std::exit(code);
}

int main(const Tool& tool, int argc, char** argv) {
  prepare_memory();
  guard_standard_streams();
  install_signal_handlers();
  std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  Reporter report(tool.name);
  report.set_color("auto");
  set_format_early(words, report);
  int code = 0;
  if (std::optional<std::string> text = answer(tool, words)) {
    code = say_or_fail(tool, *text, report);
  } else if (Result<CommandLine> expanded = expand_response_files(tool, words); !expanded.ok()) {
    report.error(expanded.error());
    code = code_of(tool, expanded.error());
  } else {
    set_format_early(expanded->words, report);
    code = run_line(tool, *expanded, report);
  }
  report.finish();
  return code;
}

}  // namespace sg::cli
