// How many blocks of a size cover a count.
#pragma once

#include <cstdint>

namespace sg::cpu {

constexpr int64_t blocks_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

}  // namespace sg::cpu
