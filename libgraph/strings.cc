#include "libgraph/strings.h"

namespace sg {

StringTable::StringTable(const StringTable& other) : strings_(other.strings_) {
  index_.reserve(strings_.size());
  for (uint32_t i = 0; i < strings_.size(); ++i) index_.emplace(strings_[i], StrId(i));
}

StrId StringTable::intern(std::string_view s) {
  if (auto it = index_.find(s); it != index_.end()) return it->second;
  StrId id(static_cast<uint32_t>(strings_.size()));
  strings_.emplace_back(s);
  index_.emplace(strings_.back(), id);
  return id;
}

StrId StringTable::find(std::string_view s) const {
  auto it = index_.find(s);
  return it == index_.end() ? StrId() : it->second;
}

}  // namespace sg
