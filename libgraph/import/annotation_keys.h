// The keys of a user's annotations and of graph passes, as captures (`meta`, `custom`) and FX comments spell them.
#pragma once

#include <string_view>

#include "libgraph/meta.h"

namespace sg {

struct ChunkTextKey {
  std::string_view key;
  StrId ChunkInfo::*field;
};
inline constexpr std::string_view kChunkOriginal = "chunked_original_name", kChunkIndex = "chunk_id",
                                  kChunkIsBackward = "chunked_region_is_backward";
inline constexpr ChunkTextKey kChunkTexts[] = {{"chunked_region_fqn", &ChunkInfo::region},
                                               {"chunked_region_role", &ChunkInfo::role},
                                               {"chunked_region_producer", &ChunkInfo::producer},
                                               {kChunkOriginal, &ChunkInfo::original}};

// "EP" names the region of expert parallelism; each of these marks a step within it and repeats the region's word.
struct EpStepKey {
  std::string_view key;
  EpStep step;
};
inline constexpr EpStepKey kEpSteps[] = {{"EP_token_exchange", EpStep::token_exchange},
                                         {"EP_token_exchange_wait", EpStep::token_exchange_wait},
                                         {"EP_token_count_exchange", EpStep::count_exchange},
                                         {"EP_token_count_sync", EpStep::count_sync}};

}  // namespace sg
