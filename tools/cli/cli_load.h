// Jobs in: what every tool does with a graph argument.
//
// Binary, text, or a rank pattern; types that a text leaves out are inferred; the verifier has passed it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "libgraph/base/diag.h"
#include "libgraph/job.h"
#include "tools/cli/cli.h"
#include "tools/cli/cli_place.h"

namespace sg::cli {

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
  size_t max_errors = 20;    // of a text that are told
};
LoadOptions load_options(const Args& args);

// Says nothing itself, so that several may run at once: what is to be said goes to `said`. Parse errors are there one
// by one; the Error returned then only sums up.
Result<Loaded> load_job(const std::string& operand, const LoadOptions& options, Diagnostics* said);

// The verifier's findings with their place in the file, in the order of its lines. At most `max_errors` are kept.
Diagnostics check_loaded(const Loaded& loaded, size_t max_errors, size_t threads);

// Gives each the line that it is about, else the file.
void place_in(const Loaded& loaded, std::vector<Diagnostic>* list);

// Reports the findings; an error (unreadable) if there are any.
Status require_valid(const Args& args, const Loaded& loaded);

// load_job and require_valid: what all tools but sg-check read with. A finding is an error (unreadable).
Result<Loaded> read_loaded(const Args& args, const std::string& operand);
Result<Job> read_job(const Args& args, const std::string& operand);  // the job alone

// The rank that --rank N names; an Error (cannot_apply) says which the job holds. REQUIRES: args.has("rank")
Result<uint32_t> held_rank(const Args& args, const Job& job);

// Warns when forward nodes are tagged for recomputation and nobody has carried it out: memory is not what the tags
// promise.
void warn_of_tags(const Args& args, const Job& job);

}  // namespace sg::cli
