// Interned strings: each distinct string once, named by a StrId that is stable for the life of the table.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "libgraph/ids.h"

namespace sg {

class StringTable {
 public:
  static constexpr StrId kEmpty{0};

  StringTable() { intern(""); }
  StringTable(const StringTable& other);
  StringTable& operator=(const StringTable&) = delete;

  StrId intern(std::string_view s);
  StrId find(std::string_view s) const;                   // none when it was never interned
  std::string_view operator[](StrId id) const { return strings_[id.index]; }
  const std::string& str(StrId id) const { return strings_[id.index]; }
  size_t size() const { return strings_.size(); }
  void reserve(size_t count) { index_.reserve(count); }

 private:
  std::deque<std::string> strings_;                       // stable addresses: the map's keys point into it
  std::unordered_map<std::string_view, StrId> index_;
};

}  // namespace sg
