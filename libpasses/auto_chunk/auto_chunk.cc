#include "libpasses/auto_chunk/auto_chunk.h"

#include "libgraph/expr/assume.h"
#include "libpasses/auto_chunk/auto_chunker.h"
#include "libpasses/auto_chunk/fewest_chunks.h"

namespace sg {
namespace {

// A way to chunk the job, and its result.
struct Attempt {
  Job job;
  Diagnostics notes;
  Result<Change> change;
  int64_t peak_bytes = 0;
  bool is_enough = false;   // the peak is as low as asked, or no amplifier sets it
  bool is_shared = false;   // one of several amplifiers still sets the peak
  int64_t most_chunks = 0;  // that the rows allow
};

class Search {
 public:
  Search(const Job& whole, const AutoChunkOptions& options, const PassContext& context)
      : whole_(whole), options_(options), context_(context) {}

  // Chunks each amplifier in its own number; if several then share the peak, chunks all in the same number.
  Attempt run() const {
    Attempt out = attempt(std::nullopt, context_.explain);
    if (options_.chunks || options_.rows_per_chunk || out.is_enough || !out.is_shared) return out;
    const auto together = [&](int64_t chunks) -> Result<TriedChunks> {
      const Attempt now = attempt(chunks, false);
      return TriedChunks{now.peak_bytes, now.is_enough};
    };
    const int64_t chunks =
        fewest_chunks({out.most_chunks, out.peak_bytes, options_.peak_bytes.has_value()}, together).value();
    return chunks > 1 ? attempt(chunks, context_.explain) : std::move(out);
  }

 private:
  Attempt attempt(std::optional<int64_t> together, bool explain) const {
    Attempt out{Job(whole_), Diagnostics(), Change()};
    PassContext context = context_;
    context.notes = &out.notes, context.explain = explain;
    AutoChunker chunker(&out.job, options_, context, together);
    out.change = chunker.run();
    out.peak_bytes = chunker.peak_bytes();
    out.is_enough = out.change.ok() && (options_.peak_bytes || !chunker.is_set_by_amplifier());
    out.is_shared = chunker.found() > 1 && chunker.is_set_by_amplifier();
    out.most_chunks = chunker.most_chunks();
    return out;
  }

  const Job& whole_;
  const AutoChunkOptions& options_;
  const PassContext& context_;
};

// Sizes that only the data decides count as what memory is planned with, in the search as in the plan that judges it.
void hint_usual_sizes(Job* job) {
  const std::vector<SymbolValues> usual = usual_values(*job);
  for (size_t i = 0; i < job->programs.size(); ++i)
    for (Symbol& symbol : job->programs[i]->symbols)
      if (const auto value = usual[i].value(symbol.name)) symbol.hint = value;
}

void take_back_hints(const Job& from, Job* job) {
  for (size_t i = 0; i < job->programs.size(); ++i)
    for (Symbol& symbol : job->programs[i]->symbols)
      if (const Symbol* known = from.programs[i]->find_symbol(symbol.name)) symbol.hint = known->hint;
}

}  // namespace

Result<Change> auto_chunk(Job* job, const AutoChunkOptions& options, PassContext& context) {
  Job hinted(*job);
  hint_usual_sizes(&hinted);
  Attempt found = Search(hinted, options, context).run();
  take_back_hints(*job, &found.job);
  *job = std::move(found.job);
  context.notes->add(found.notes);
  return std::move(found.change);
}

}  // namespace sg
