// Interned strings: each distinct string once, named by a StrId that is stable for the life of the table.
//
// The text lies in large blocks and the index is one flat array, because a graph of a million nodes brings a million
// names: a string costs its bytes and about 32 more, and no allocation of its own.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/flat_map.h"
#include "libgraph/base/ids.h"

namespace sg {

class StringTable {
 public:
  static constexpr StrId kEmpty{0};

  StringTable() { intern(""); }
  StringTable(const StringTable& other);
  StringTable& operator=(const StringTable&) = delete;

  StrId intern(std::string_view s);
  StrId find(std::string_view s) const;                                       // none when it was never interned
  std::string_view operator[](StrId id) const { return strings_[id.index]; }  // valid as long as the table
  std::string str(StrId id) const { return std::string(strings_[id.index]); }
  size_t size() const { return strings_.size(); }
  void reserve(size_t count);

 private:
  StrId find(std::string_view s, uint64_t hash) const;
  std::string_view keep(std::string_view s);

  std::vector<std::string_view> strings_;        // by id
  std::vector<std::unique_ptr<char[]>> blocks_;  // what they point into
  char* free_ = nullptr;
  size_t free_bytes_ = 0;
  FlatIndex index_;
};

}  // namespace sg
