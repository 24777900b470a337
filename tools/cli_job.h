// Jobs in and out: what every tool does with a graph argument and with its result.
//
// In    binary, text, or a rank pattern; types that a text leaves out are inferred; the verifier has passed it.
// Out   -o FILE or standard output, binary or text, or one file a rank.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/job.h"
#include "tools/cli.h"
#include "tools/cli_input.h"
#include "tools/cli_place.h"

namespace sg::cli {

class WriteAhead;

// A job as read, before the verifier: with its texts, if it came as text, so that findings can show the line.
struct Loaded {
  Job job;
  std::string file;
  std::vector<SourceText> texts;
  size_t bytes = 0;  // of all files
};

struct LoadOptions {
  size_t threads = 1;        // files of a rank set are read on several
  bool best_effort = false;  // leave out ranks whose file is missing or cannot be read, with a warning
  bool explain = false;      // say how ranks were merged
};
LoadOptions load_options(const Args& args);

// Says nothing itself, so that several may run at once: what is to be said goes to `said`. Parse errors are there one
// by one; the Error returned then only sums up.
Result<Loaded> load_job(const std::string& operand, const LoadOptions& options, Diagnostics* said);

// The verifier's findings with their place in the file. At most `max_errors` are kept.
Diagnostics check_loaded(const Loaded& loaded, size_t max_errors, size_t threads);

// Reports the findings; an error (unreadable) if there are any.
Status require_valid(const Args& args, const Loaded& loaded);

// load_job and require_valid: what all tools but sg-check read with. A finding is an error (unreadable).
Result<Job> read_job(const Args& args, const std::string& operand);

// The rank that --rank N names; an Error (cannot_apply) says which the job holds. REQUIRES: args.has("rank")
Result<uint32_t> held_rank(const Args& args, const Job& job);

// Warns when forward nodes are tagged for recomputation and nobody has carried it out: memory is not what the tags
// promise.
void warn_of_tags(const Args& args, const Job& job);

// Where the output goes: -o, the input with --in-place, else "-".
std::string output_of(const Args& args);

// Refuses, before any work: an output that is the input without --in-place, binary to a terminal.
Status check_output(const Args& args);

// Refuses --json where the answer is a text: `what` says which.
Status refuse_json(const Args& args, const std::string& what);

// The job in the form and to the place that the options ask for, then a line (or with --json a report) about it.
// `passes` is JSON that the report has under that key; empty = none. With --dry-run nothing is put in its place.
// `ahead` may hold the bytes already (write_ahead.h).
Status write_job(const Args& args, const Job& job, std::string_view passes = {}, WriteAhead* ahead = nullptr);

// The job in a file, or in one a rank (`rank{r}.sg`); text when the name ends in .txt. Makes missing folders.
Status write_job_file(const Job& job, const std::string& path);

// A job in another form, to -o or standard output: the whole of it, or with {r} in the name a file a rank.
using JobWriter = std::function<Result<std::string>(const Job&)>;
Status write_form(const Args& args, const Job& job, const JobWriter& form);

// Whether write_job writes one binary file: what a WriteAhead is for.
bool writes_one_binary(const Args& args);

// A text or report to -o, as write_output does, or to standard output.
Status write_text(const Args& args, std::string_view text);

// All of `bytes` to a place that the options name; with --dry-run as far as it goes without putting it there.
Status write_output(const Args& args, const std::string& path, std::string_view bytes, bool make_folders = false);

// --dry-run: writes a temporary file and removes it, so that errors show up.
Status try_to_write(const std::string& path, std::string_view bytes);

// All of `bytes` to one place, or nothing.
Status write_whole(const std::string& path, std::string_view bytes, bool make_folders = false);

// "383 nodes, 52 inputs, 51 outputs, 4 ranks in 1 program".
std::string describe(const Job& job);
// Title, world, groups, and a line a program.
std::string describe_long(const Job& job);
// {"schema":TOOL,"version":1,"file","nodes","inputs","outputs","world","programs"}: the --json report of a writer.
std::string describe_json(const Args& args, const Job& job, const std::string& file, std::string_view passes = {});

// Appends the tool, its options and the digest of its input to the job's provenance.
void add_provenance(const Args& args, const std::vector<std::string>& options, const std::string& digest, Job* job);

}  // namespace sg::cli
