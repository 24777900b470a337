// Sets over the hash tables of flat_map.h, with their costs and limits.
#pragma once

#include "libgraph/base/flat_map.h"

namespace sg {

// Of ids; none is no member.
template <class Key>
class FlatSet {
 public:
  bool insert(Key key) { return map_.try_emplace(key, {}).second; }  // whether it is new
  bool contains(Key key) const { return map_.contains(key); }

 private:
  struct Nothing {};
  FlatMap<Key, Nothing> map_;
};

// Of texts, which lie with the owner.
class FlatTextSet {
 public:
  bool insert(std::string_view text) { return map_.try_emplace(text, {}).second; }  // whether it is new
  bool empty() const { return map_.size() == 0; }

 private:
  struct Nothing {};
  FlatTextMap<Nothing> map_;
};

}  // namespace sg
