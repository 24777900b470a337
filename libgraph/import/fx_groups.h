// The process groups of a traced text. Internal to the importers.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/result.h"
#include "libgraph/job.h"

namespace sg {

// The process groups that a text names. It says their size at best: members are for the caller to say.
class FxGroups {
 public:
  explicit FxGroups(Job* job) : job_(job) {}
  GroupId of(std::string_view name, std::optional<int64_t> size);
  int64_t largest() const;         // of the sizes that are told; 1 without any
  size_t of_unknown_size() const;  // groups whose size is not told
  bool empty() const { return sizes_.empty(); }
  // Gives each its members, and its name on ranks below `named_ranks`. Those of unknown size hold the world; smaller
  // ones the ranks from 0 on, or from the last rank backwards where 0 is not meant. An error where members cannot be
  // told: a group smaller than the world while several ranks are there.
  Status settle(uint32_t world, size_t programs, uint32_t named_ranks);

 private:
  Job* job_;
  std::map<std::string, GroupId, std::less<>> by_name_;
  std::vector<std::optional<int64_t>> sizes_;  // by GroupId
};

}  // namespace sg
