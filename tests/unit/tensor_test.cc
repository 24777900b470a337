#include <catch2/catch.hpp>

#include "librun/cpu/fill.h"
#include "tests/support/kernel_call.h"
#include "tests/support/rng.h"

using namespace sg;

TEST_CASE("contiguous and dense views") {
  std::byte memory[64];
  Tensor t = make_tensor(memory, DType::f32, std::vector<int64_t>{2, 3});
  CHECK(t.is_contiguous());
  Tensor turned = swap_axes(t, 0, 1);
  CHECK_FALSE(turned.is_contiguous());
  CHECK(turned.is_dense());
  Tensor wide = broadcast_to(t, std::vector<int64_t>{4, 2, 3});
  CHECK_FALSE(wide.is_dense());
  CHECK(wide.step(0) == 0);
  CHECK(extent_bytes(wide) == 24);
  CHECK(make_tensor(memory, DType::f32, std::vector<int64_t>{0, 3}).is_contiguous());
}

TEST_CASE("a row walk meets every element once, in row-major order") {
  test::Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    int rank = static_cast<int>(rng.below(5));
    std::vector<int64_t> shape;
    for (int i = 0; i < rank; ++i) shape.push_back(static_cast<int64_t>(rng.below(4)) + (round % 9 != 0));
    Tensor a = make_tensor(nullptr, DType::f32, shape), b = a;
    if (rank > 1) b = broadcast_to(drop_axis(a, 0), shape);
    cpu::RowWalker walk({&a, &b});
    int64_t seen = 0, expected = a.elements();
    walk.for_rows(0, walk.rows() / 2, [&](const int64_t* offset, int64_t) {
      REQUIRE(offset[0] == seen);
      seen += walk.length();
    });
    walk.for_rows(walk.rows() / 2, walk.rows(), [&](const int64_t* offset, int64_t) {
      REQUIRE(offset[0] == seen);
      int64_t inner = rank > 1 && shape[0] > 0 ? a.elements() / shape[0] : 0;
      if (rank > 1 && inner > 0) REQUIRE(offset[1] == seen % inner);
      seen += walk.length();
    });
    CHECK(seen == expected);
  }
}

// They may be the bits of something else, seen as halves: NaNs, quiet ones and others, come through as well.
TEMPLATE_TEST_CASE("a pointwise copy of halves keeps every bit", "", BF16, F16) {
  test::Buffer<TestType> all({256, 256}), turned({256, 256}, {}, {1, 256});
  for (int64_t i = 0; i < 65536; ++i) all.at(i).bits = static_cast<uint16_t>(i);
  REQUIRE(test::call("aten.clone.default", {{"self", all}}, {turned.tensor()}).ok());
  int64_t wrong = 0;
  for (int64_t i = 0; i < 65536; ++i) wrong += turned.at(i).bits != i;
  CHECK(wrong == 0);
}
