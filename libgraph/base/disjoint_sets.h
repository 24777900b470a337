// Sets of the numbers 0, 1, 2, ... that are joined, never parted. The smallest member stands for its set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace sg {

template <class Index>
class DisjointSets {
 public:
  DisjointSets() = default;
  explicit DisjointSets(size_t count) : above_(count) { std::iota(above_.begin(), above_.end(), Index{0}); }

  void add() { above_.push_back(static_cast<Index>(above_.size())); }  // one more, alone
  size_t size() const { return above_.size(); }

  Index first_of(Index x) {
    while (above_[x] != x) x = above_[x] = above_[above_[x]];
    return x;
  }
  void join(Index a, Index b) {
    const Index x = first_of(a), y = first_of(b);
    above_[std::max(x, y)] = std::min(x, y);
  }

 private:
  std::vector<Index> above_;  // nearer to the first of its set, which stands above itself
};

}  // namespace sg
