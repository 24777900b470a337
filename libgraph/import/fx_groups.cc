#include "libgraph/import/fx_groups.h"

#include <algorithm>

namespace sg {

// Over all groups: names are short, but each may claim as many members as a world has.
constexpr uint64_t kMaxMembers = 1 << 23;

GroupId FxGroups::of(std::string_view name, std::optional<int64_t> size) {
  auto it = by_name_.find(name);
  if (it == by_name_.end()) {
    it = by_name_.try_emplace(std::string(name), GroupId(static_cast<uint32_t>(sizes_.size()))).first;
    sizes_.emplace_back();
  }
  std::optional<int64_t>& known = sizes_[it->second.index];
  if (size) known = std::max(known.value_or(0), *size);
  return it->second;
}

int64_t FxGroups::largest() const {
  int64_t largest = 1;
  for (const auto& size : sizes_) largest = std::max(largest, size.value_or(1));
  return largest;
}

size_t FxGroups::of_unknown_size() const {
  return static_cast<size_t>(std::ranges::count_if(sizes_, [](const auto& size) { return !size; }));
}

Status FxGroups::settle(uint32_t world, size_t programs, uint32_t named_ranks) {
  std::vector<std::string_view> names(sizes_.size());
  for (const auto& [name, id] : by_name_) names[id.index] = name;
  uint64_t members = 0;
  for (const auto& size : sizes_) members += static_cast<uint64_t>(std::max<int64_t>(1, size.value_or(world)));
  if (members > kMaxMembers)
    return Error{
        ErrorKind::unreadable,
        std::to_string(sizes_.size()) + " groups with " + std::to_string(members) + " members are beyond any job",
        {},
        {}};
  for (size_t g = 0; g < sizes_.size(); ++g) {
    uint32_t size = static_cast<uint32_t>(std::max<int64_t>(1, sizes_[g].value_or(world)));
    if (size != world && programs > 1)
      return Error{ErrorKind::unreadable,
                   "the group `" + std::string(names[g]) + "` holds " + std::to_string(size) + " of " +
                       std::to_string(world) + " ranks, and the text does not say which",
                   {},
                   "import the capture of each rank, which declares its groups"};
    Group group;
    group.axis = job_->pool->str(names[g]);
    GroupPart part;
    uint32_t first = named_ranks > size ? named_ranks - size : 0;
    for (uint32_t r = first; r < first + size; ++r) {
      part.ranks.push_back(r);
      if (r < named_ranks) part.aliases.push_back({r, group.axis});
    }
    group.parts.push_back(std::move(part));
    job_->groups.push_back(std::move(group));
  }
  return ok_status();
}

}  // namespace sg
