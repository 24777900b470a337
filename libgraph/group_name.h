// What a group family is called for people, as in the text form but for its @: "ep", and "ep:1" for the next family of
// that axis (sg-overlap makes them), which would else bear the same name. "?" = the file does not declare it.
#pragma once

#include <string>

#include "libgraph/job.h"

namespace sg {

inline std::string group_name(const Job& job, GroupId id) {
  if (id.index >= job.groups.size()) return "?";
  const Group& group = job.groups[id.index];
  std::string out = job.pool->strings.str(group.axis);
  return group.ordinal == 0 ? out : out + ":" + std::to_string(group.ordinal);
}

}  // namespace sg
