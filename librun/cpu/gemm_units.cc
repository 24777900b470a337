#include "librun/cpu/gemm_units.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>

#include "librun/cpu/instruction_set.h"
#include "librun/cpu/unit_instructions.h"

// gcc 12 warns about its own undefined vectors (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace sg::cpu {
namespace {

// Checks the CPU for matrix units, and the system for saving their state on context switches.
Units processor_units() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return Units::none;
  constexpr unsigned kBf16Tiles = 1u << 22, kTiles = 1u << 24, kF16Tiles = 1u << 21;
  if ((d & kBf16Tiles) == 0 || (d & kTiles) == 0) return Units::none;
  const bool f16 = __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & kF16Tiles) != 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_OSXSAVE) == 0) return Units::none;
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileState = 3u << 17;
  if ((low & kTileState) != kTileState) return Units::none;
  return f16 ? Units::f16 : Units::bf16;
}

// Linux grants a process the large tile state on request.
bool ask_system() {
  constexpr long kRequest = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

template <Units kUnits, int kC, int kA, int kB>
void multiply_add() {
  if constexpr (kUnits == Units::f16) unit::multiply_add_f16<kC, kA, kB>();
  else unit::multiply_add<kC, kA, kB>();
}

struct Term {
  int a, b;
};  // parts

template <Units kUnits>
constexpr std::array<Term, 6> kTerms = {{{0, 2}, {0, 1}, {0, 0}, {1, 0}, {1, 1}, {2, 0}}};
template <>
constexpr std::array<Term, 3> kTerms<Units::f16> = {{{0, 1}, {0, 0}, {1, 0}}};
template <>
constexpr std::array<Term, 1> kTerms<Units::whole> = {{{0, 0}}};

// One step of kTall x 2 tiles. Tiles 0 to 3 hold sums, 4 and 5 tiles of A, 6 and 7 of B.
template <Units kUnits, bool kSwapped, int kTall>
[[gnu::always_inline]] inline void step(const uint16_t* a, int64_t a_tile_step, const uint16_t* b) {
  int a_part = -1, b_part = -1;
#pragma GCC unroll 6
  for (Term term : kTerms<kUnits>) {
    if (kSwapped) term = {term.b, term.a};
    if (a_part != term.a) {
      unit::load<4>(a + term.a * kUnitTile, 64);
      if (kTall == 2) unit::load<5>(a + a_tile_step + term.a * kUnitTile, 64);
    }
    if (b_part != term.b) {
      unit::load<6>(b + 2 * term.b * kUnitTile, 64);
      unit::load<7>(b + (2 * term.b + 1) * kUnitTile, 64);
    }
    a_part = term.a, b_part = term.b;
    multiply_add<kUnits, 0, 4, 6>();
    multiply_add<kUnits, 1, 4, 7>();
    if (kTall == 2) multiply_add<kUnits, 2, 5, 6>(), multiply_add<kUnits, 3, 5, 7>();
  }
}

// Computes sums into sums->place(), while the previous ones are stored.
template <Units kUnits, bool kSwapped, int kTall>
void sum_steps(const UnitProduct& p, int64_t first, SumStore* sums, Prefetch* next, int64_t lines_a_step) {
  constexpr int kParts = parts_of(kUnits);
  // One product a step leaves no time between loads of tiles.
  const int64_t rows_a_step = has_parts(kUnits) ? sums->rows_left() / std::max<int64_t>(p.steps, 1) + 1 : 0;
  unit::clear<0>(), unit::clear<1>(), unit::clear<2>(), unit::clear<3>();
  const uint16_t* a = p.a + first * p.row_tile_size() + kUnitHead;
  const uint16_t* b = p.b + 2 * kUnitHead;
  const int64_t a_tile_step = p.row_tile_size();
  for (int64_t s = 0; s < p.steps; ++s, a += kParts * kUnitTile, b += 2 * kParts * kUnitTile) {
    next->issue(lines_a_step);
    sums->store(rows_a_step);
    step<kUnits, kSwapped, kTall>(a, a_tile_step, b);
  }
  float* place = sums->place();
  constexpr int64_t kTile = SumStore::kTile;
  unit::store<0>(place, 64), unit::store<1>(place + kTile, 64);
  if (kTall == 2) unit::store<2>(place + 2 * kTile, 64), unit::store<3>(place + 3 * kTile, 64);
}

using SumSteps = void (*)(const UnitProduct&, int64_t, SumStore*, Prefetch*, int64_t);

template <Units kUnits>
constexpr SumSteps kSums[2][2] = {{sum_steps<kUnits, false, 1>, sum_steps<kUnits, false, 2>},
                                  {sum_steps<kUnits, true, 1>, sum_steps<kUnits, true, 2>}};

#define SG_AVX512_OP [[gnu::always_inline]] __attribute__((target("avx512f,avx512bw,avx512vl"))) inline

constexpr float kLeastOfWide = 0x1p16f;

// The scales of one row and 16 columns; unused for bf16.
struct Scales {
  __m512 exponent, least;
};

SG_AVX512_OP Scales scales_of(const LineScales& a, int64_t line, const LineScales& b) {
  const __m512 doubt = _mm512_add_ps(_mm512_set1_ps(a.doubt[line]), _mm512_load_ps(b.doubt));
  return {_mm512_add_ps(_mm512_set1_ps(a.exponent[line]), _mm512_load_ps(b.exponent)),
          _mm512_mul_ps(doubt, _mm512_set1_ps(kLeastOfWide))};
}

SG_AVX512_OP __mmask16 nan_lanes(__mmask16 lanes, __m512 x) {
  return _mm512_mask_cmp_ps_mask(lanes, x, x, _CMP_UNORD_Q);
}

// 16 numbers rounded to bf16, as work::to_brain does.
SG_AVX512_OP __m256i to_brains(__m512 x) {
  const __m512i u = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __mmask16 bare = _mm512_testn_epi32_mask(u, _mm512_set1_epi32(0x7F0000));
  const __m512i of_nan = _mm512_mask_or_epi32(u, bare, u, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, of_nan), 16));
}

SG_AVX512_OP __m512 from_brains(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// Stores rows [begin, end) of complete sums, rounded to bf16.
SG_AVX512_OP void store_rounded(int64_t begin, int64_t end, int64_t columns, const float* sums, const UnitSums& to) {
  const auto lanes = static_cast<__mmask32>(columns >= kUnitColumns ? ~0u : (1u << columns) - 1);
  const auto low = static_cast<__mmask16>(lanes), high = static_cast<__mmask16>(lanes >> kUnitLines);
  for (int64_t i = begin; i < end; ++i) {
    const float* tile = sums + i / kUnitLines * 2 * SumStore::kTile + i % kUnitLines * kUnitLines;
    __m512 left = _mm512_load_ps(tile), right = _mm512_load_ps(tile + SumStore::kTile);
    if (to.add) {
      const float* c = to.c + i * to.step;
      left = _mm512_add_ps(_mm512_maskz_loadu_ps(low, c), left);
      right = _mm512_add_ps(_mm512_maskz_loadu_ps(high, c + kUnitLines), right);
    }
    if (to.rounded_self) {
      const uint16_t* self = to.rounded_self + i * to.rounded_self_step;
      left = _mm512_add_ps(left, from_brains(_mm256_maskz_loadu_epi16(low, self)));
      right = _mm512_add_ps(right, from_brains(_mm256_maskz_loadu_epi16(high, self + kUnitLines)));
    }
    const __m512i row = _mm512_inserti64x4(_mm512_castsi256_si512(to_brains(left)), to_brains(right), 1);
    uint16_t* place = to.rounded + i * to.rounded_step;
    if (to.stream && lanes == ~0u && reinterpret_cast<uintptr_t>(place) % 64 == 0)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(place), row);
    else _mm512_mask_storeu_epi16(place, lanes, row);
  }
}

// Stores one row of one tile at row i and column j of the destination. Returns the lanes whose sums are NaN.
SG_AVX512_OP __mmask16 store_row(__m512 sum, const Scales* scales, const UnitSums& to, __mmask16 lanes, int64_t i,
                                 int64_t j) {
  float* c = to.c + i * to.step + j;
  if (scales) {
    const __mmask16 unsure = _mm512_cmp_ps_mask(_mm512_abs_ps(sum), scales->least, _CMP_LT_OQ);
    sum = _mm512_mask_mov_ps(_mm512_scalef_ps(sum, scales->exponent), unsure,
                             _mm512_set1_ps(std::numeric_limits<float>::quiet_NaN()));
  }
  const __mmask16 spared = to.spare ? nan_lanes(lanes, sum) : 0;
  if (to.add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, c), sum);
  const __mmask16 nan = to.spare ? spared : nan_lanes(lanes, sum);
  if (to.self) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(lanes, to.self + i * to.self_step + j));
  if (to.stream && lanes == 0xFFFF && reinterpret_cast<uintptr_t>(c) % 64 == 0) _mm512_stream_ps(c, sum);
  else _mm512_mask_storeu_ps(c, lanes & ~spared, sum);
  return nan;
}

const LineScales* scales_at(const uint16_t* head) { return reinterpret_cast<const LineScales*>(head); }

// Stores rows [begin, end). Returns whether any sum is NaN.
__attribute__((target("avx512f,avx512bw,avx512vl"))) bool store_rows(const UnitProduct& p, int64_t first, int64_t begin,
                                                                     int64_t end, int64_t columns, const float* sums,
                                                                     const UnitSums& to) {
  if (to.rounded) {
    store_rounded(begin, end, columns, sums, to);
    return false;
  }
  const bool scaled = p.units == Units::f16;
  __mmask16 nan = 0;
  for (int64_t i = begin; i < end; ++i)
    for (int64_t half = 0; half * kUnitLines < columns; ++half) {
      const int64_t width = std::min(kUnitLines, columns - half * kUnitLines), line = i % kUnitLines;
      const auto lanes = static_cast<__mmask16>(width == kUnitLines ? 0xFFFF : (1 << width) - 1);
      Scales scales;
      if (scaled)
        scales = scales_of(*scales_at(p.a + (first + i / kUnitLines) * p.row_tile_size()), line, scales_at(p.b)[half]);
      const __m512 sum = _mm512_load_ps(sums + (i / kUnitLines * 2 + half) * SumStore::kTile + line * kUnitLines);
      nan |= store_row(sum, scaled ? &scales : nullptr, to, lanes, i, half * kUnitLines);
    }
  return nan != 0;
}

}  // namespace

Units best_units() {
  static const Units best =
      isa_available(Isa::avx512) && processor_units() != Units::none && ask_system() ? processor_units() : Units::none;
  return best;
}

bool has_units(Units units) {
  const Units best = best_units();
  return units == Units::none || best == Units::f16 || best == units || (units == Units::whole && best == Units::bf16);
}

UnitTiles::UnitTiles() {
  const TileConfig config;
  asm volatile("ldtilecfg %0" ::"m"(config));
}

UnitTiles::~UnitTiles() {
  asm volatile("tilerelease");
  _mm_sfence();  // completes streamed stores before this thread reports completion
}

void SumStore::begin(const UnitProduct& product, int64_t first, int64_t rows, int64_t columns, const UnitSums& to) {
  at_ = 1 - at_;
  product_ = product, to_ = to;
  first_ = first, rows_ = rows, columns_ = columns, row_ = 0;
  nan_ = false;
}

void SumStore::store(int64_t rows) {
  const int64_t end = std::min(row_ + rows, rows_);
  if (row_ == end) return;
  nan_ |= store_rows(product_, first_, row_, end, columns_, sums_[at_], to_);
  row_ = end;
}

bool SumStore::finish() {
  store(rows_left());
  return nan_;
}

bool multiply_tiles(const UnitProduct& p, int64_t first, int64_t rows, int64_t columns, const UnitSums& to,
                    SumStore* store, Prefetch* next, int64_t lines_a_step) {
  for (int64_t i = 0; i < rows && !to.stream; ++i) {  // prefetch the destination while the sums are computed
    if (to.rounded) __builtin_prefetch(to.rounded + i * to.rounded_step, 1);
    else __builtin_prefetch(to.c + i * to.step, 1), __builtin_prefetch(to.c + i * to.step + kUnitLines, 1);
  }
  const auto& of_units = p.units == Units::f16     ? kSums<Units::f16>
                         : p.units == Units::whole ? kSums<Units::whole>
                                                   : kSums<Units::bf16>;
  of_units[p.swapped][rows > kUnitLines](p, first, store, next, lines_a_step);
  const bool nan = store->finish();
  store->begin(p, first, rows, columns, to);
  return nan;
}

}  // namespace sg::cpu
