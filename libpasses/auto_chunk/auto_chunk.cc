#include "libpasses/auto_chunk/auto_chunk.h"

#include <algorithm>

#include "libpasses/auto_chunk/auto_chunker.h"

namespace sg {
namespace {

// A way to chunk the job, and what came of it.
struct Attempt {
  Job job;
  Diagnostics notes;
  Result<Change> change;
  int64_t peak_bytes = 0;
  bool is_enough = false;   // the peak is as low as asked, or no amplifier sets it
  bool is_shared = false;   // of several amplifiers one still sets it
  int64_t most_chunks = 0;  // that rows allow
};

class Search {
 public:
  Search(const Job& whole, const AutoChunkOptions& options, const PassContext& context)
      : whole_(whole), options_(options), context_(context) {}

  // Each amplifier in its own number of chunks; if that leaves a peak that several share, all in the same number.
  Attempt run() const {
    Attempt out = attempt(std::nullopt, context_.explain);
    if (options_.chunks || options_.rows_per_chunk || out.is_enough || !out.is_shared) return out;
    const std::optional<int64_t> chunks = fewest_together(out);
    return chunks ? attempt(chunks, context_.explain) : std::move(out);
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

  // Doubles the number until it is enough, then bisects; none if that makes no lower peak than `apart`. If no number is
  // enough, the fewest within 1 % of the lowest peak, or of that peak itself where a peak was asked for.
  std::optional<int64_t> fewest_together(const Attempt& apart) const {
    std::vector<std::pair<int64_t, int64_t>> tried;  // chunks, peak
    for (int64_t low = 1, high = 2; low < apart.most_chunks; low = high, high *= 2) {
      high = std::min(high, apart.most_chunks);
      const Attempt now = attempt(high, false);
      if (now.is_enough)
        return now.peak_bytes < apart.peak_bytes ? std::optional(fewest_between(low, high)) : std::nullopt;
      const bool falls = tried.empty() || now.peak_bytes < tried.back().second - tried.back().second / 100;
      tried.emplace_back(high, now.peak_bytes);
      if (high > kManyChunks && !falls) break;
    }
    if (tried.empty()) return std::nullopt;
    const int64_t least = std::ranges::min(tried, {}, &std::pair<int64_t, int64_t>::second).second;
    if (least >= apart.peak_bytes) return std::nullopt;
    const int64_t good = options_.peak_bytes ? least : least + least / 100;
    return std::ranges::find_if(tried, [&](const auto& t) { return t.second <= good; })->first;
  }

  // REQUIRES: `high` chunks are enough, and `low` are not
  int64_t fewest_between(int64_t low, int64_t high) const {
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (attempt(middle, false).is_enough ? high : low) = middle;
    }
    return high;
  }

  const Job& whole_;
  const AutoChunkOptions& options_;
  const PassContext& context_;
};

}  // namespace

Result<Change> auto_chunk(Job* job, const AutoChunkOptions& options, PassContext& context) {
  Attempt found = Search(*job, options, context).run();
  *job = std::move(found.job);
  context.notes->add(found.notes);
  return std::move(found.change);
}

}  // namespace sg
