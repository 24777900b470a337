#include "librun/execute/segments.h"

#include <catch2/catch.hpp>
#include <random>

using namespace sg;

namespace {

std::vector<Split> splits(std::string_view text) {  // '.': nothing splits
  std::vector<Split> out;
  for (char c : text) out.push_back(c == '.' ? Split::none : c == 'c' ? Split::collective : Split::number);
  return out;
}

std::string planned(std::string_view text, size_t least) {
  std::string out;
  for (const Segment& s : plan_segments(splits(text), least))
    out += std::to_string(s.first) + "+" + std::to_string(s.count) + " ";
  return out;
}

}  // namespace

TEST_CASE("recorded segments are the longest runs that nothing splits") {
  CHECK(planned("", 1).empty());
  CHECK(planned("...", 1) == "0+3 ");
  CHECK(planned("..c...n.", 1) == "0+2 3+3 7+1 ");
  CHECK(planned("c..c", 1) == "1+2 ");
  CHECK(planned("cnc", 1).empty());
}

TEST_CASE("short runs are not recorded") {
  CHECK(planned("..c...n.", 3) == "3+3 ");
  CHECK(planned("....", 5).empty());
  CHECK(planned("c", 0).empty());
}

TEST_CASE("recorded segments hold every item that nothing splits, once, and no other") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = static_cast<int>(random() % 40); i > 0; --i) text += random() % 3 ? '.' : 'c';
    std::string marked(text.size(), '-');
    for (const Segment& s : plan_segments(splits(text), 1))
      for (size_t i = s.first; i < s.first + s.count; ++i) {
        REQUIRE(marked[i] == '-');
        marked[i] = '.';
      }
    for (size_t i = 0; i < text.size(); ++i) CHECK((text[i] == '.') == (marked[i] == '.'));
  }
}
