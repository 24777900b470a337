#include "libgraph/base/checked.h"

#include <catch2/catch.hpp>

namespace sg {
namespace {

TEST_CASE("checked: quotients round down, and rests have the divisor's sign") {
  struct Case {
    int64_t a, b, quotient, rest;
  };
  for (const Case& c : {Case{7, 2, 3, 1},
                        {-7, 2, -4, 1},
                        {7, -2, -4, -1},
                        {-7, -2, 3, -1},
                        {6, -3, -2, 0},
                        {0, -3, 0, 0},
                        {INT64_MIN, 1, INT64_MIN, 0},
                        {INT64_MIN, 3, -3074457345618258603, 1}}) {
    CAPTURE(c.a, c.b);
    CHECK(floor_div(c.a, c.b) == c.quotient);
    CHECK(floor_mod(c.a, c.b) == c.rest);
  }
  CHECK_FALSE(has_quotient(1, 0));
  CHECK_FALSE(has_quotient(INT64_MIN, -1));
  CHECK(has_quotient(INT64_MIN, 1));
}

TEST_CASE("checked: what leaves 64 bits is nothing") {
  CHECK(checked_add(INT64_MAX, 1) == std::nullopt);
  CHECK(checked_mul(INT64_MIN, -1) == std::nullopt);
  CHECK(checked_pow(2, 62) == int64_t{1} << 62);
  CHECK(checked_pow(2, 63) == std::nullopt);
  CHECK(checked_pow(-2, 63) == INT64_MIN);
  CHECK(checked_pow(-1, UINT64_MAX) == -1);
  CHECK(checked_pow(0, 0) == 1);
  CHECK(saturating_add(INT64_MAX, 1) == INT64_MAX);
}

}  // namespace
}  // namespace sg
