// Results out: a job, a form of it or a text, to -o FILE or standard output, or one file a rank.
//
// A command that writes several files stages all and places them together: a failure leaves all older ones.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "libgraph/base/output_file.h"
#include "libgraph/job.h"
#include "tools/cli/cli.h"

namespace sg::cli {

class WriteAhead;

// Where the output goes: -o, the input with --in-place, else "-".
std::string output_of(const Args& args);

// Refuses, before any work: --in-place where input and output are of different kinds, an output that replaces what is
// read (cli_targets.h), binary to a terminal.
Status check_output(const Args& args);

// Refuses --json where the answer is a text: `what` says which.
Status refuse_json(const Args& args, const std::string& what);

// The job in the form and to the place that the options ask for, then a line (or with --json a report) about it.
// `passes` is JSON that the report has under that key; empty = none. With --dry-run nothing is put in its place.
// `ahead` may hold the bytes already (write_ahead.h). `beside` is placed with it.
Status write_job(const Args& args, const Job& job, std::string_view passes = {}, WriteAhead* ahead = nullptr,
                 OutputSet beside = {});

// The job in a file, or in one a rank (`rank{r}.sg`); text when the name ends in .txt. Makes missing folders.
Status write_job_file(const Job& job, const std::string& path);

// A job in another form, to -o or standard output: the whole of it, or with {r} in the name a file a rank.
using JobWriter = std::function<Result<std::string>(const Job&)>;
Status write_form(const Args& args, const Job& job, const JobWriter& form);

// Whether write_job writes one binary file: what a WriteAhead is for.
bool writes_one_binary(const Args& args);

enum class Colors : uint8_t { none, used };

// A text or report to -o, as write_output does, or to standard output, its control characters visible. `beside` is
// placed with it.
Status write_text(const Args& args, std::string_view text, OutputSet beside = {}, Colors colors = Colors::none);
Status stage_text(const Args& args, std::string_view text, OutputSet* files, Colors colors = Colors::none);

// All of `bytes` to a place that the options name; with --dry-run as far as it goes without putting it there.
Status write_output(const Args& args, const std::string& path, std::string_view bytes, bool make_folders = false);
Status stage_output(const Args& args, const std::string& path, std::string_view bytes, OutputSet* files,
                    bool make_folders = false);

// Makes placed files final. Where the reader of a pipe had enough, the process then ends as it does without files.
void keep_placed(OutputSet* files);

// --dry-run: writes a temporary file and removes it, so that errors show up.
Status try_to_write(const std::string& path, std::string_view bytes);

// All of `bytes` to one place, or nothing.
Status write_whole(const std::string& path, std::string_view bytes, bool make_folders = false);

}  // namespace sg::cli
