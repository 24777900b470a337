// The nearest word: a typo is resolved, a different word is not.
#include "libgraph/base/nearest.h"

#include <catch2/catch.hpp>

using namespace sg;

namespace {

std::string best(std::string_view word, std::initializer_list<std::string_view> candidates) {
  Nearest nearest(word);
  for (std::string_view c : candidates) nearest.offer(c);
  return std::string(nearest.best());
}

}  // namespace

TEST_CASE("nearest: the fewest edits, the first of equals") {
  CHECK(best("--ouptut", {"--input", "--output"}) == "--output");
  CHECK(best("cat", {"car", "cut"}) == "car");
  CHECK(best("cat", {"dog"}).empty());
  CHECK(best("", {"a"}).empty());
}

TEST_CASE("nearest: a long name's parts excuse no other word in one of them") {
  CHECK(best("aten.thanh.default", {"aten.sin.default", "aten.tanh.default"}) == "aten.tanh.default");
  CHECK(best("aten.add.tensor", {"aten.add.Tensor"}) == "aten.add.Tensor");
  CHECK(best("_c10d_functional.isend.default", {"_c10d_functional.broadcast.default"}).empty());
  CHECK(best("mine.foo.default", {"aten.floor.default", "aten.cos.default"}).empty());
  CHECK(best("layrs.0", {"layers.0.mlp", "layers.0"}) == "layers.0");
  CHECK(best("tanh.default", {"aten.tanh.default"}).empty());
}
