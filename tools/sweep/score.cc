#include "tools/sweep/score.h"

#include <simdjson.h>

#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/base/median.h"
#include "libgraph/binary/binary.h"
#include "libgraph/expr/assume.h"
#include "libgraph/sim/simulate.h"
#include "libgraph/story/stat.h"
#include "tools/cli/cli_siblings.h"
#include "tools/recipe/key.h"
#include "tools/recipe/process.h"

namespace sg::sweep {
namespace {

Error unknown(const std::string& name, const std::string& what) {
  return {ErrorKind::cannot_apply, name + " has no score: " + what, {}, "sg-stat and sg-sim list the nodes"};
}

Result<Score> simulated(const Scoring& scoring, std::string_view sealed, const std::string& name) {
  SG_ASSIGN(Job job, read_binary(sealed, name));
  SG_ASSIGN(std::vector<SymbolValues> values, assume_values(job, infer_ranges(job), Assumption()));
  StatOptions options;
  options.sizes = sizes_of(job, values);
  Score out;
  for (const ProgramStats& stats : collect_stats(job, options).programs) {
    if (stats.memory.unknown_sizes != 0)
      return unknown(name, plural(stats.memory.unknown_sizes, "piece") + " of memory whose size has no number");
    out.peak_bytes = std::max(out.peak_bytes, static_cast<double>(stats.memory.peak_bytes));
  }
  SimOptions sim;
  sim.events = false;
  sim.machine = scoring.machine;
  SG_ASSIGN(Simulation simulation, simulate(job, values, sim));
  for (const ProgramTimeline& timeline : simulation.programs)
    if (timeline.unknown != 0) return unknown(name, plural(timeline.unknown, "node") + " of unknown cost");
  out.step_seconds = simulation.worst().makespan_us * 1e-6;
  return out;
}

// The median step, without the first one if there are more.
double usual_step(std::vector<double> seconds) {
  if (seconds.size() > 1) seconds.erase(seconds.begin());
  return median(std::move(seconds));
}

Result<Score> read_report(const std::string& json) {
  const Error wrong{ErrorKind::internal, "sg-run --json has no step_seconds, arena_bytes and pool_bytes", {}, {}};
  simdjson::dom::parser parser;
  simdjson::dom::element report;
  simdjson::dom::array steps, ranks;
  if (parser.parse(json).get(report) || report["step_seconds"].get(steps) || report["ranks"].get(ranks)) return wrong;
  Score out;
  std::vector<double> seconds;
  for (const auto& s : steps) {
    double value = 0;
    if (s.get(value)) return wrong;
    seconds.push_back(value);
  }
  for (const auto& rank : ranks) {
    double arena = 0, pool = 0;
    if (rank["arena_bytes"].get(arena) || rank["pool_bytes"].get(pool)) return wrong;
    out.peak_bytes = std::max(out.peak_bytes, arena + pool);
  }
  out.step_seconds = usual_step(std::move(seconds));
  return out;
}

Result<Score> run(const Scoring& scoring, std::string_view sealed) {
  std::vector<std::string> words = {cli::folder_of_this() + "sg-run", "-", "--json", "-q"};
  words.insert(words.end(), scoring.run_words.begin(), scoring.run_words.end());
  SG_ASSIGN(recipe::Finished done, recipe::run_process(words, sealed, "-"));
  if (done.code != 0) return recipe::error_of(done, "sg-run", {});
  return read_report(done.output);
}

}  // namespace

Result<std::string> Scoring::key() const {
  if (!runs) return "simulated\n" + machine_yaml(machine);
  SG_ASSIGN(std::string out, recipe::version_of(cli::folder_of_this() + "sg-run"));
  for (const std::string& word : run_words) out += "\n" + word;
  return "run " + out;
}

Result<Score> score_of(const Scoring& scoring, std::string_view sealed, const std::string& name) {
  return scoring.runs ? run(scoring, sealed) : simulated(scoring, sealed, name);
}

}  // namespace sg::sweep
