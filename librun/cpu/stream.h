// Stores that bypass the caches, for results too large to stay in them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sg::cpu {

// Copies `bytes` to `to`. Others see them after finish_streaming, called by the same thread.
void stream(std::byte* to, const std::byte* from, int64_t bytes);
void finish_streaming();

}  // namespace sg::cpu
