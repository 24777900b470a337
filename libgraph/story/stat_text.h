// Statistics as tables for people; their JSON is stats_json (stat.h).
#pragma once

#include <string>

#include "libgraph/story/stat.h"

namespace sg {

enum class StatTable : uint8_t { phase, module, op };
StatTable stat_table_named(std::string_view name);  // REQUIRES: one of these names

// One block a program: counts, parameters, cost, memory, communication, what is not known, and a table of `rows` rows,
// heaviest first; the rest is summed up in one line.
std::string print_stats(const Stats& stats, StatTable table, size_t rows);

}  // namespace sg
