// Errors that say why a region cannot be chunked: where, by which rule, and what else to try. Internal to sg-chunk.
#pragma once

#include <string>
#include <string_view>

#include "libpasses/chunk/chunk_plan.h"

namespace sg {

inline constexpr std::string_view kMemoryRule = "memory";  // for writes, which sg-clean may be able to replace
inline constexpr std::string_view kRanksRule = "ranks";    // for collectives that other ranks would not chunk

struct RefusedRegion {
  uint32_t region;
  Error error;
  std::optional<RowsTogether> unless = {};  // it would be none, were these rows cut so
};

class ChunkRefusals {
 public:
  // best_effort: the option was given, so remedies do not suggest it.
  ChunkRefusals(const Program& program, bool best_effort) : program_(program), best_effort_(best_effort) {}

  Error at_node(NodeId n, std::string_view rule, const std::string& why) const;
  Error of_module(const ChunkRegion& region, const std::string& why) const;

 private:
  std::string remedy(std::string_view other) const;

  const Program& program_;
  const bool best_effort_;
};

}  // namespace sg
