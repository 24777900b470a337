#include <catch2/catch.hpp>

#include "librun/cpu/fill.h"
#include "librun/execute/memory.h"
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

TEST_CASE("an arena for nothing has an address, from which empty tensors may begin further on") {
  Result<Arena> none = Arena::reserve(0);
  REQUIRE(none.ok());
  CHECK(none->bytes() == 0);
  CHECK(none->data() != nullptr);
}

// The offset of element `i` of a view, in elements.
static int64_t place_of(const Tensor& t, int64_t i) {
  int64_t offset = 0;
  for (int axis = t.rank - 1; axis >= 0; --axis) offset += i % t.dim(axis) * t.step(axis), i /= t.dim(axis);
  return offset;
}

TEST_CASE("a view under another shape has the same elements in the same order") {
  test::Rng rng(3);
  int views = 0, none = 0;
  for (int round = 0; round < 2000; ++round) {
    // A shape, and two groupings of its factors into axes.
    std::vector<int64_t> factors, shape, other;
    for (uint64_t i = rng.below(5); i > 0; --i) factors.push_back(static_cast<int64_t>(rng.below(4)) + 1);
    auto grouped = [&](std::vector<int64_t>* out) {
      for (int64_t factor : factors) {
        if (!out->empty() && rng.percent(50)) out->back() *= factor;
        else out->push_back(factor);
        if (rng.percent(15)) out->push_back(1);
      }
    };
    grouped(&shape), grouped(&other);
    Tensor t = make_tensor(nullptr, DType::f32, shape);
    for (int axis = 0; axis < t.rank; ++axis)
      if (rng.percent(20)) t.stride[static_cast<size_t>(axis)] = rng.percent(50) ? 0 : 7;
    if (t.rank > 1 && rng.percent(20)) t = swap_axes(t, 0, t.rank - 1);
    const std::optional<Tensor> view = view_as(t, other);
    // One exists if the elements along each axis of the result are evenly spaced.
    bool exists = true;
    Tensor want = make_tensor(nullptr, DType::f32, other);
    for (int axis = 0; axis < want.rank; ++axis) {
      const int64_t below = want.step(axis);
      want.stride[static_cast<size_t>(axis)] = want.dim(axis) > 1 ? place_of(t, below) : 0;
    }
    const Tensor plain = make_tensor(nullptr, DType::f32, other);
    for (int64_t i = 0; i < plain.elements(); ++i) exists &= place_of(want, i) == place_of(t, i);
    INFO("round " << round);
    REQUIRE(view.has_value() == exists);
    ++(exists ? views : none);
    for (int64_t i = 0; view && i < plain.elements(); ++i) REQUIRE(place_of(*view, i) == place_of(t, i));
  }
  CHECK(views > 200);
  CHECK(none > 200);
  const Tensor t = make_tensor(nullptr, DType::f32, std::array<int64_t, 2>{2, 3});
  CHECK_FALSE(view_as(t, std::array<int64_t, 1>{5}).has_value());
  CHECK_FALSE(
      view_as(make_tensor(nullptr, DType::f32, std::array<int64_t, 2>{0, 3}), std::array<int64_t, 1>{0}).has_value());
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

// The bits may be of another type seen as halves: NaNs of all kinds are kept too.
TEMPLATE_TEST_CASE("a pointwise copy of halves keeps every bit", "", BF16, F16) {
  test::Buffer<TestType> all({256, 256}), turned({256, 256}, {}, {1, 256});
  for (int64_t i = 0; i < 65536; ++i) all.at(i).bits = static_cast<uint16_t>(i);
  REQUIRE(test::call("aten.clone.default", {{"self", all}}, {turned.tensor()}).ok());
  int64_t wrong = 0;
  for (int64_t i = 0; i < 65536; ++i) wrong += turned.at(i).bits != i;
  CHECK(wrong == 0);
}
