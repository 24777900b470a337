// Are two programs of one job the same? By content and position, names included.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libgraph/job.h"

namespace sg {

// Nothing when the programs are equal but for the ranks that run them; else the first thing that differs, in words.
// Both must lie over one pool and have been built in the same order, so that equal content has equal ids: programs read
// by the same code (an import), or copied by a Translator.
std::optional<std::string> first_difference(const Program& a, const Program& b);

// Equal for equal programs, under the same condition; of others rarely.
uint64_t fingerprint(const Program& program);

}  // namespace sg
