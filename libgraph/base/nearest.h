// The nearest word: what a user probably meant. For hints after a wrong option, keyword or name.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sg {

// Collects candidates one by one and keeps the one with the fewest edits (insert, remove, replace, swap two
// neighbours), the first of equals. Only near ones count: at most a third of the word's length, but one always; and
// that in each of a name's parts between dots.
class Nearest {
 public:
  explicit Nearest(std::string_view word);
  void offer(std::string_view candidate);
  std::string_view best() const { return best_; }  // empty = nothing is near
  // "did you mean `PREFIXbest`?", or empty.
  std::string hint(std::string_view prefix = "") const;

 private:
  std::string word_, best_;
  size_t limit_;
};

template <class Words>
std::string nearest_hint(std::string_view word, const Words& words, std::string_view prefix = "") {
  Nearest nearest(word);
  for (std::string_view w : words) nearest.offer(w);
  return nearest.hint(prefix);
}

}  // namespace sg
