// Which program of a job a rank runs. A file may hold only some of the ranks of its world.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "libgraph/job.h"

namespace sg {

class ProgramsByRank {
 public:
  explicit ProgramsByRank(const Job& job) : is_spmd_(job.is_spmd()) {
    if (is_spmd_) return;  // the only program names no ranks
    for (uint32_t p = 0; p < job.programs.size(); ++p)
      for (uint32_t r : job.programs[p]->ranks) of_.emplace(r, p);
  }

  // None: the file does not hold the rank.
  std::optional<uint32_t> of(uint32_t rank) const {
    if (is_spmd_) return 0;
    const auto it = of_.find(rank);
    return it == of_.end() ? std::nullopt : std::optional(it->second);
  }

 private:
  bool is_spmd_;
  std::unordered_map<uint32_t, uint32_t> of_;
};

}  // namespace sg
