#include "librun/cpu/unit_tiles.h"

#include <immintrin.h>

#include "librun/cpu/unit_instructions.h"

namespace sg::cpu {
namespace {

const std::byte* row_of(const UnitRows& rows, int tile, int64_t step) {
  return static_cast<const std::byte*>(rows.from[tile]) + rows.at[tile][step];
}

// Tiles 0 to 3 hold sums, 4 and 5 left ones, 6 and 7 right ones.
template <int kLeft, int kRight>
void multiply(const UnitRows& left, const UnitRows& right, int64_t steps, bool add, const UnitPlaces& sums) {
  const int64_t row = sums.row * static_cast<int64_t>(sizeof(float));
  float *at = sums.at, *below = at + sums.left;
  unit::clear<0>(), unit::clear<1>(), unit::clear<2>(), unit::clear<3>();
  if (add) {
    unit::load<0>(at, row);
    if constexpr (kRight == 2) unit::load<1>(at + sums.right, row);
    if constexpr (kLeft == 2) unit::load<2>(below, row);
    if constexpr (kLeft == 2 && kRight == 2) unit::load<3>(below + sums.right, row);
  }
  for (int64_t s = 0; s < steps; ++s) {
    unit::load<4>(row_of(left, 0, s), left.step);
    if constexpr (kLeft == 2) unit::load<5>(row_of(left, 1, s), left.step);
    unit::load<6>(row_of(right, 0, s), right.step);
    if constexpr (kRight == 2) unit::load<7>(row_of(right, 1, s), right.step);
    unit::multiply_add<0, 4, 6>();
    if constexpr (kRight == 2) unit::multiply_add<1, 4, 7>();
    if constexpr (kLeft == 2) unit::multiply_add<2, 5, 6>();
    if constexpr (kLeft == 2 && kRight == 2) unit::multiply_add<3, 5, 7>();
  }
  unit::store<0>(at, row);
  if constexpr (kRight == 2) unit::store<1>(at + sums.right, row);
  if constexpr (kLeft == 2) unit::store<2>(below, row);
  if constexpr (kLeft == 2 && kRight == 2) unit::store<3>(below + sums.right, row);
}

}  // namespace

void multiply_rows(const UnitRows& left, const UnitRows& right, int64_t steps, bool add, const UnitPlaces& sums) {
  if (left.count == 2) return (right.count == 2 ? multiply<2, 2> : multiply<2, 1>)(left, right, steps, add, sums);
  return (right.count == 2 ? multiply<1, 2> : multiply<1, 1>)(left, right, steps, add, sums);
}

__attribute__((target("avx512f,avx512bw"))) void copy_lines(const uint16_t* from, int64_t step, int64_t count,
                                                            std::span<uint16_t* const> to, int64_t at) {
  const auto lanes = static_cast<__mmask32>((uint64_t{1} << count) - 1);
  for (uint16_t* line : to) {
    _mm512_mask_storeu_epi16(line + at, lanes, _mm512_maskz_loadu_epi16(lanes, from));
    from += step;
  }
}

}  // namespace sg::cpu
