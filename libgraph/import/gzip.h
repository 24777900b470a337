// Reading gzip, with a bound on what it may unpack to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "libgraph/base/result.h"

namespace sg {

// A file may unpack to `free_bytes` whatever its size, beyond that only to `max_ratio` times its size, and never to
// more than `max_bytes`: a small file cannot fill the memory.
struct GzipLimits {
  uint64_t free_bytes = uint64_t{64} << 20;
  uint64_t max_ratio = 200;  // captures reach 40
  uint64_t max_bytes = uint64_t{2} << 30;
};

bool is_gzip(std::string_view bytes);

// The first bytes of what it unpacks to, at most so many: fewer when it is shorter, or damaged.
std::string gunzip_head(std::string_view bytes, size_t most);

// All members of a gzip file, one after the other. Truncated, corrupt and oversized input is `unreadable`.
Result<std::string> gunzip(std::string_view bytes, const GzipLimits& limits = {});

}  // namespace sg
