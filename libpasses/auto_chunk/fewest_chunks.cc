#include "libpasses/auto_chunk/fewest_chunks.h"

#include <algorithm>
#include <vector>

namespace sg {
namespace {

constexpr int64_t kManyChunks = 64;  // beyond these a doubling must pay off

}  // namespace

Result<int64_t> fewest_chunks(const ChunkSearch& search, const std::function<Result<TriedChunks>(int64_t)>& attempt) {
  std::vector<std::pair<int64_t, int64_t>> tried{{1, search.before_bytes}};  // chunks, peak
  for (;;) {
    const auto [low, last] = tried.back();
    const int64_t high = std::min(low * 2, search.most);
    if (high <= low) break;
    SG_ASSIGN(const TriedChunks now, attempt(high));
    if (now.is_enough) {
      if (!search.has_limit && now.peak_bytes >= search.before_bytes) return 1;
      int64_t too_few = low, enough = high;
      while (enough - too_few > 1) {
        const int64_t middle = too_few + (enough - too_few) / 2;
        SG_ASSIGN(const TriedChunks between, attempt(middle));
        (between.is_enough ? enough : too_few) = middle;
      }
      return enough;
    }
    if (!search.has_limit && high > kManyChunks && now.peak_bytes > last - last / 100) break;
    tried.emplace_back(high, now.peak_bytes);
  }
  const int64_t least = std::ranges::min(tried, {}, &std::pair<int64_t, int64_t>::second).second;
  const int64_t good = search.has_limit ? least : least + least / 100;
  return std::ranges::find_if(tried, [&](const auto& t) { return t.second <= good; })->first;
}

}  // namespace sg
