#include "tools/reduce/commands.h"

#include <cmath>
#include <csignal>

#include "libgraph/base/human.h"
#include "libgraph/base/temp_folder.h"
#include "libgraph/binary/binary.h"
#include "tools/cli/cli_load.h"
#include "tools/cli/cli_output.h"
#include "tools/cli/cli_provenance.h"
#include "tools/cli/cli_write.h"
#include "tools/reduce/search.h"

namespace sg::reduce {
namespace {

using cli::Args;

constexpr int kTrials = 3;        // on the whole job, to see whether the failure is reproducible
constexpr double kMissed = 0.01;  // accepted rate of failing candidates taken for passing ones

volatile std::sig_atomic_t ended_by = 0;  // the signal

void stop(int number) {
  ended_by = number;
  stop_probing();
  std::signal(number, SIG_DFL);  // a second signal ends the tool at once
}

// The file of a candidate: one per candidate tested concurrently.
std::string file_in(const TempFolder& folder, size_t slot) {
  return folder.file("candidate-" + std::to_string(slot) + ".sg");
}

Result<Answer> ask_about(const Job& job, const std::string& path, const ProbeOptions& options) {
  SG_ASSIGN(std::string bytes, write_binary(job));
  SG_TRY(cli::write_whole(path, bytes));
  return probe(options, path);
}

// As a shell says it.
int code_of_signal() { return 128 + ended_by; }

// The number of attempts per candidate, as given or from how often the whole job fails; 0 = stopped before that was
// known.
Result<int> attempts_for(const Args& args, const Job& job, const TempFolder& folder, ProbeOptions options) {
  constexpr int64_t kMostAttempts = 1000;
  const int64_t given = args.number("attempts", 1);
  if (given == 0) return Error{ErrorKind::usage, "--attempts takes at least 1", {}, {}};
  options.attempts = static_cast<int>(std::min(given, kMostAttempts));
  const int trials = args.has("attempts") ? 1 : kTrials;
  int yes = 0, late = 0, skipped = 0;  // a skipped attempt says nothing about the failure rate
  for (int i = 0; i < trials; ++i) {
    SG_ASSIGN(Answer answer, ask_about(job, file_in(folder, 0), options));
    if (answer == Answer::stopped) return 0;
    yes += answer == Answer::yes, late += answer == Answer::late, skipped += answer == Answer::skip;
  }
  if (yes == 0 && late != 0)
    return Error{
        ErrorKind::negative,
        "the command does not end within " + args.text("timeout") +
            " s on the whole job, or searching what it prints does not, which counts as not failing",
        {},
        "--timeout gives it more; for a job that hangs, `timeout 10 sg-run ...` in the command makes that an exit "
        "code"};
  if (yes == 0 && skipped == trials)
    return Error{ErrorKind::negative,
                 "the command says nothing about the whole job: it exits 125",
                 {},
                 "--show prints its output"};
  if (yes == 0)
    return Error{ErrorKind::negative,
                 "the command does not report a failure for the whole job (--interesting-if " +
                     args.text("interesting-if") + "): there is nothing to reduce",
                 {},
                 "it is run as `" + options.command + " GRAPH.sg`; --show prints its output"};
  if (args.has("attempts")) return options.attempts;
  const int answered = trials - skipped;
  if (yes == answered) return 1;
  double rate = static_cast<double>(yes) / answered;
  int attempts = static_cast<int>(std::ceil(std::log(kMissed) / std::log(1 - rate)));
  args.report().note("the failure showed in " + std::to_string(yes) + " of " + std::to_string(answered) +
                     " runs: each candidate is asked about up to " + plural(static_cast<size_t>(attempts), "time"));
  return attempts;
}

// What a job had to begin with.
struct Whole {
  size_t nodes;
  uint32_t world;
};

std::string summary(const Found& found, const Whole& before) {
  std::string out = std::to_string(before.nodes) + " -> " + plural(found.job.node_count(), "node");
  if (before.world != 1) out += ", " + std::to_string(before.world) + " -> " + plural(found.job.world, "rank");
  out += "; asked " + plural(found.asked, "time");
  if (found.skipped != 0) out += ", " + std::to_string(found.skipped) + " skipped";
  if (found.invalid != 0) out += ", " + plural(found.invalid, "candidate") + " not valid";
  return out;
}

}  // namespace

Result<int> reduce_operand(const Args& args) {
  if (!args.has("fails"))
    return Error{ErrorKind::usage,
                 "--fails is missing: a command that recognizes a failing job",
                 {},
                 "--fails './breaks.sh': exit 0 for a graph file that still fails"};
  ProbeOptions probing;
  probing.command = args.text("fails");
  probing.timeout_seconds = static_cast<double>(args.number("timeout", 60));
  probing.show = args.has("show");
  SG_ASSIGN(probing.interest, parse_interest(args.text("interesting-if")));
  SG_ASSIGN(Job job, cli::read_job(args, args.input()));
  SG_ASSIGN(TempFolder folder, TempFolder::make("sg-reduce"));
  cli::handle_ends(stop);
  const Whole before{job.node_count(), job.world};
  SG_ASSIGN(probing.attempts, attempts_for(args, job, folder, probing));
  if (probing.attempts == 0) {
    args.report().note("stopped before the search began: nothing is written");
    return code_of_signal();
  }
  if (args.has("dry-run")) {
    args.report().line("sg-reduce: would reduce " + plural(before.nodes, "node") + ", which show the failure");
    return 0;
  }

  SearchOptions options;
  options.threads = args.threads();
  options.keep_metadata = args.has("keep-metadata");
  options.keep_ranks = args.has("keep-ranks");
  options.ask = [&](const Job& candidate, size_t slot) { return ask_about(candidate, file_in(folder, slot), probing); };
  options.progress = [&](const Job& best, size_t asked) {
    args.report().phase("smaller", plural(best.node_count(), "node") + " after " + plural(asked, "question"));
  };
  SG_ASSIGN(Found found, shrink(std::move(job), options));
  if (!found.complete && found.job.node_count() == before.nodes && found.job.world == before.world) {
    args.report().note("stopped before anything smaller was found: nothing is written");
    return code_of_signal();
  }
  if (!found.complete) args.report().note("stopped: the best so far is kept");
  if (found.job.node_count() == 0)
    args.report().note(
        "the command finds the failure in a graph of no nodes, too: does it read the candidate ({} is its path)?");
  cli::add_provenance(args, {}, {}, &found.job);
  SG_TRY(cli::write_job(args, found.job));
  args.report().note(summary(found, before));
  return found.complete ? 0 : code_of_signal();
}

}  // namespace sg::reduce
