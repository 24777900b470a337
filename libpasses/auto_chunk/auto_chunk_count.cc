#include <algorithm>

#include "libgraph/expr/symbols.h"
#include "libgraph/plan/liveness.h"
#include "libpasses/auto_chunk/auto_chunker.h"
#include "libpasses/auto_chunk/fewest_chunks.h"
#include "libpasses/planned_peak.h"

namespace sg {

AutoChunker::Peak AutoChunker::peak_of(const Job& job) {
  Peak out;
  for (const auto& program : job.programs) {
    const Graph& graph = program->graph;
    const Liveness live = compute_liveness(*program, graph, assumed_sizes(*program));
    if (live.lower_bound_bytes <= out.bytes || live.schedule.empty()) continue;
    const NodeId n = live.schedule[live.peak_position];
    const StrId role = graph.meta(n).chunk.role;
    out = {live.lower_bound_bytes, std::string(graph.label(n)),
           !role.is_none() && graph.pool().strings[role] == "call"};
  }
  return out;
}

std::optional<int64_t> AutoChunker::predicted(const Prepared& prepared, int64_t chunks) const {
  auto trial = outline(prepared, chunks);
  if (!trial.ok()) return std::nullopt;
  return planned_peak(trial->job);
}

// Refuses a number that leaves the last chunk fewer rows than --min-rows.
Result<int64_t> AutoChunker::choose(const Next& next, const Prepared& prepared) const {
  const auto few = [&](int64_t n) {
    return Error{ErrorKind::cannot_apply,
                 "%" + next.label + ": " + std::to_string(n) + " chunks have fewer than " +
                     std::to_string(options_.least_rows) + " rows",
                 {},
                 "fewer chunks"};
  };
  if (options_.rows_per_chunk) {
    SG_ASSIGN(const int64_t n, chunks_by_rows(next, prepared));
    return *options_.rows_per_chunk < options_.least_rows ? Result<int64_t>(few(n)) : Result<int64_t>(n);
  }
  if (options_.chunks) {
    const int64_t n = std::min(*options_.chunks, prepared.rows);
    return n > prepared.most_chunks && options_.least_rows > 1 ? Result<int64_t>(few(n)) : Result<int64_t>(n);
  }
  if (together_) return std::min(*together_, prepared.most_chunks);
  return fewest(prepared);
}

// The number of chunks for --rows-per-chunk. Rows may be symbolic if their whole range gives one number.
Result<int64_t> AutoChunker::chunks_by_rows(const Next& next, const Prepared& prepared) const {
  std::optional<int64_t> out;
  for (size_t i = 0; i < prepared.plans.size(); ++i) {
    if (!prepared.plans[i]) continue;
    const Program& program = *prepared.job.programs[i];
    const ExprPool& exprs = program.graph.pool().exprs;
    const int64_t each = rows_of_chunk(*prepared.plans[i], program);
    const auto chunks_of = [&](int64_t n) { return std::max<int64_t>(n, 1) / each + (n % each > 0 ? 1 : 0); };
    const Expr rows = prepared.plans[i]->rows();
    const Interval range = Facts(program).range(rows);
    const int64_t least = chunks_of(std::max<int64_t>(range.min, 1));
    if (!range.has_max() || chunks_of(range.max) != least) {
      const auto captured = exprs.evaluate(rows, assumed_sizes(program));
      return Error{ErrorKind::cannot_apply,
                   "%" + next.label + ": of " + exprs.print(rows) + " rows, " + print(range) +
                       ", it is unknown how many chunks of " + std::to_string(each) +
                       " they make: " + std::to_string(least) + " to " +
                       (range.has_max() ? std::to_string(chunks_of(range.max)) : "any number"),
                   {},
                   "--chunks " +
                       (captured && chunks_of(*captured) > 1
                            ? std::to_string(chunks_of(*captured)) + ", as at the sizes of the capture"
                            : std::string("N")) +
                       "; or numbers for the sizes before: sg-concretize"};
    }
    if (out && *out != least)
      return Error{ErrorKind::cannot_apply,
                   "%" + next.label + ": ranks would have " + std::to_string(*out) + " and " + std::to_string(least) +
                       " chunks of " + std::to_string(each) + " rows",
                   {},
                   "--chunks N cuts all alike"};
    out = least;
  }
  return out.value_or(1);
}

Result<int64_t> AutoChunker::fewest(const Prepared& prepared) const {
  return fewest_chunks({prepared.most_chunks, measured(job_).bytes, options_.peak_bytes.has_value()},
                       [&](int64_t chunks) -> Result<TriedChunks> {
                         SG_ASSIGN(const Trial trial, outline(prepared, chunks));
                         const Peak peak = measured(trial.job);
                         return TriedChunks{peak.bytes, is_enough(peak)};
                       });
}

// A limit applies to the planned arena; to compare numbers of chunks, peak live bytes are as informative and cheaper.
AutoChunker::Peak AutoChunker::measured(const Job& job) const {
  Peak out = peak_of(job);
  if (options_.peak_bytes) out.bytes = planned_peak(job);
  return out;
}

bool AutoChunker::is_enough(const Peak& peak) const {
  return options_.peak_bytes ? peak.bytes <= *options_.peak_bytes || !peak.at_call : !peak.at_call;
}

}  // namespace sg
