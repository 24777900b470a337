// Which ranks run a program, for people and for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libgraph/base/json.h"

namespace sg {

// "each of 8 ranks", "rank 3", "ranks 0 2 4 to 7". `ranks` is sorted; empty: all of `world`.
std::string ranks_text(const std::vector<uint32_t>& ranks, uint32_t world);

// "ranks":[0,2]; of all ranks: [].
void write_ranks(const std::vector<uint32_t>& ranks, JsonWriter* json);

}  // namespace sg
