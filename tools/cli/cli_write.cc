#include "tools/cli/cli_write.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "libgraph/base/human.h"
#include "libgraph/base/json.h"
#include "libgraph/base/output_file.h"
#include "libgraph/binary/binary.h"
#include "libgraph/edit/merge.h"
#include "libgraph/text/text.h"
#include "tools/cli/cli_describe.h"
#include "tools/cli/cli_input.h"
#include "tools/cli/cli_output.h"
#include "tools/cli/cli_targets.h"
#include "tools/cli/write_ahead.h"

namespace sg::cli {
namespace {

constexpr uint32_t kMostFiles = 1 << 20;

bool wants_text(const Args& args) { return args.has("text") || output_of(args).ends_with(".txt"); }

Result<std::string> bytes_of(bool as_text, const Job& job) {
  if (as_text) return print_text(job);
  return write_binary(job);
}

Status stage_exploded(const Job& job, const std::string& pattern, const JobWriter& form, bool is_dry,
                      OutputSet* files) {
  if (job.world > kMostFiles)
    return Error{ErrorKind::cannot_apply,
                 "the job has " + std::to_string(job.world) + " ranks, which would be as many files",
                 {},
                 "write it as one file: a name without {r}"};
  for (uint32_t rank : ranks_held(job)) {
    SG_ASSIGN(std::string bytes, form(job_of_rank(job, rank)));
    const std::string name = file_of_rank(pattern, rank);
    SG_TRY(is_dry ? try_to_write(name, bytes) : files->stage(name, bytes, true));
  }
  return ok_status();
}

Status place_all(OutputSet* files) {
  SG_TRY(files->commit());
  keep_placed(files);
  return ok_status();
}

// One place, with others waiting for theirs: a reader that has enough may not end the process now.
Status stage_beside(const std::string& path, std::string_view bytes, bool make_folders, OutputSet* files) {
  if (!files->empty()) outlive_readers();
  return files->stage(path, bytes, make_folders);
}

// Refuses a rank pattern as output: a report is a single file for all ranks.
Status refuse_pattern(const Args& args) {
  if (!is_rank_pattern(output_of(args))) return ok_status();
  return Error{ErrorKind::usage,
               "output " + output_of(args) + " has {r}, but this report is a single file for all ranks",
               {},
               "leave {r} out of its name"};
}

std::string named(const std::string& path) { return path == "-" ? "standard output" : path; }

// What --json writes to standard output, unless that holds the graph.
Status stage_report(const Args& args, const std::string& report, const std::string& path, OutputSet* files) {
  if (!args.has("json") || (path == "-" && !args.has("dry-run"))) return ok_status();
  return stage_beside("-", report, false, files);
}

void say_written(const Args& args, const Job& job, const std::string& path, const std::string& report) {
  const bool is_dry = args.has("dry-run");
  if (path == "-" && !is_dry) {
    if (args.has("json")) args.report().line(report.substr(0, report.size() - 1));
    return;
  }
  if (!args.has("json"))
    args.report().line(args.report().tool() + (is_dry ? ": would write " : ": wrote ") + named(path) + ": " +
                       describe(job));
}

// Before minutes of work: a folder that is missing or may not be written to. Those of a pattern are made.
Status check_folder_of(const std::string& output) {
  namespace fs = std::filesystem;
  std::error_code ignored;  // what cannot be examined is told of when the file is opened
  if (output == "-" || is_rank_pattern(output) || fs::is_other(output, ignored) || fs::is_symlink(output, ignored))
    return ok_status();
  fs::path folder = fs::path(output).parent_path();
  if (folder.empty()) folder = ".";
  auto cannot = [&](const std::string& why, std::string hint) {
    return Error{ErrorKind::missing, "cannot write: " + why, {output}, std::move(hint)};
  };
  const fs::file_status status = fs::status(folder, ignored);
  const std::string name = "`" + folder.string() + "`";
  if (status.type() == fs::file_type::not_found)
    return cannot("there is no folder " + name, "mkdir -p " + folder.string());
  if (fs::exists(status) && !fs::is_directory(status)) return cannot(name + " is no folder", {});
  if (fs::is_directory(output, ignored)) return cannot("it is a folder", "name a file in it");
  if (fs::is_directory(status) && ::access(folder.c_str(), W_OK) != 0)
    return cannot("nothing may be written in the folder " + name, {});
  return ok_status();
}

}  // namespace

std::string output_of(const Args& args) {
  if (args.has("output")) return is_standard_output(args.text("output")) ? "-" : args.text("output");
  return args.has("in-place") ? args.input() : "-";
}

Status refuse_json(const Args& args, const std::string& what) {
  if (!args.has("json")) return ok_status();
  return Error{ErrorKind::usage, what + ": --json does not go with it", {}, {}};
}

Status check_output(const Args& args) {
  if (args.has("in-place") && !takes_in_place(args.tool()))
    return Error{ErrorKind::usage,
                 "`--in-place` would replace the input by something of another kind",
                 {},
                 "it is for tools that read a graph and write one"};
  std::string output = output_of(args);
  if (args.has("in-place") && !args.has("output") && (output == "-" || args.operands().size() != 1))
    return Error{ErrorKind::usage, "`--in-place` needs one named input", {}, "name the file, or write to -o FILE"};
  if (output.empty()) return Error{ErrorKind::usage, "`--output` is empty", {}, "- is standard output"};
  if (args.tool().writes == Writes::report) SG_TRY(refuse_pattern(args));
  SG_TRY(check_targets(args));
  SG_TRY(check_folder_of(output));
  if (args.tool().writes != Writes::graph || output != "-" || wants_text(args) || args.has("force-tty"))
    return ok_status();
  if (::isatty(STDOUT_FILENO) == 0) return ok_status();
  return Error{ErrorKind::usage, "binary output to a terminal is refused", {}, "use -o FILE, --text, a pipe, or -f"};
}

Status write_whole(const std::string& path, std::string_view bytes, bool make_folders) {
  SG_ASSIGN(OutputFile file, OutputFile::open(path, make_folders));
  SG_TRY(file.write(bytes));
  SG_TRY(file.close());
  return file.commit();
}

Status try_to_write(const std::string& path, std::string_view bytes) {
  namespace fs = std::filesystem;
  std::error_code ignored;  // what cannot be examined cannot be opened either
  const fs::path folder = fs::path(path).parent_path();
  const bool is_new_folder = !folder.empty() && !fs::exists(folder, ignored);
  const bool is_special = fs::exists(path, ignored) && !fs::is_regular_file(path, ignored);
  if (path == "-" || is_new_folder || is_special) return ok_status();
  SG_ASSIGN(OutputFile file, OutputFile::open(path));
  SG_TRY(file.write(bytes));
  return file.close();
}

void keep_placed(OutputSet* files) {
  const bool reader_left = files->reader_left();
  files->keep();
  if (reader_left) end_without_reader();
}

Status stage_output(const Args& args, const std::string& path, std::string_view bytes, OutputSet* files,
                    bool make_folders) {
  if (!args.has("dry-run")) return stage_beside(path, bytes, make_folders, files);
  SG_TRY(try_to_write(path, bytes));
  args.report().line(args.report().tool() + ": would write " + named(path) + ": " + plural(bytes.size(), "byte"));
  return ok_status();
}

Status write_output(const Args& args, const std::string& path, std::string_view bytes, bool make_folders) {
  OutputSet files;
  SG_TRY(stage_output(args, path, bytes, &files, make_folders));
  return files.commit();
}

Status write_job_file(const Job& job, const std::string& path) {
  const bool as_text = path.ends_with(".txt");
  if (is_rank_pattern(path)) {
    OutputSet files;
    SG_TRY(stage_exploded(
        job, path, [&](const Job& one) { return bytes_of(as_text, one); }, false, &files));
    return files.commit();
  }
  SG_ASSIGN(const std::string bytes, bytes_of(as_text, job));
  return write_whole(path, bytes, true);
}

bool writes_one_binary(const Args& args) { return !wants_text(args) && !is_rank_pattern(output_of(args)); }

Status write_job(const Args& args, const Job& job, std::string_view passes, WriteAhead* ahead, OutputSet beside) {
  const std::string path = output_of(args);
  size_t written = 0;
  if (is_rank_pattern(path)) {
    const auto form = [&](const Job& one) { return bytes_of(wants_text(args), one); };
    SG_TRY(stage_exploded(job, path, form, args.has("dry-run"), &beside));
  } else {
    std::optional<Result<std::string>> made = ahead == nullptr ? std::nullopt : ahead->take();
    SG_ASSIGN(std::string bytes, made ? std::move(*made) : bytes_of(wants_text(args), job));
    SG_TRY(args.has("dry-run") ? try_to_write(path, bytes) : stage_beside(path, bytes, false, &beside));
    written = bytes.size();
  }
  const std::string report = args.has("json") ? describe_json(args, job, path, passes) + "\n" : "";
  SG_TRY(stage_report(args, report, path, &beside));
  SG_TRY(place_all(&beside));
  args.report().phase("write", path + (written == 0 ? "" : ", " + plural(written, "byte")));
  say_written(args, job, path, report);
  return ok_status();
}

Status write_form(const Args& args, const Job& job, const JobWriter& form) {
  if (is_rank_pattern(output_of(args))) {
    OutputSet files;
    SG_TRY(stage_exploded(job, output_of(args), form, args.has("dry-run"), &files));
    return files.commit();
  }
  SG_ASSIGN(const std::string text, form(job));
  return write_text(args, text);
}

Status stage_text(const Args& args, std::string_view text, OutputSet* files, Colors colors) {
  SG_TRY(refuse_pattern(args));
  const std::string path = output_of(args);
  const std::string shown = without_controls(text, colors == Colors::used);
  const bool is_answer = path == "-";  // read by someone: changes nothing, so --dry-run writes it too
  SG_TRY(is_answer ? stage_beside("-", shown, false, files) : stage_output(args, path, shown, files));
  args.report().phase("write", path + ", " + plural(shown.size(), "byte"));
  return ok_status();
}

Status write_text(const Args& args, std::string_view text, OutputSet beside, Colors colors) {
  SG_TRY(stage_text(args, text, &beside, colors));
  return place_all(&beside);
}

}  // namespace sg::cli
