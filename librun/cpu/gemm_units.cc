#include "librun/cpu/gemm_units.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "librun/cpu/instruction_set.h"

namespace sg::cpu {
namespace {

// Registers of the processor and of the system: matrix units, and their state saved when threads change.
bool processor_has_units() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kBf16Tiles = 1u << 22, kTiles = 1u << 24;
  if ((d & kBf16Tiles) == 0 || (d & kTiles) == 0) return false;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_OSXSAVE) == 0) return false;
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileState = 3u << 17;
  return (low & kTileState) == kTileState;
}

// Linux gives a process the large state of tiles when it asks.
bool ask_system() {
  constexpr long kRequest = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

template <int kTile>
void load(const void* from, int64_t step_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(step_bytes), "i"(kTile) : "memory");
}

template <int kTile>
void store(void* to, int64_t step_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(step_bytes), "i"(kTile) : "memory");
}

template <int kTile>
void clear() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}

template <int kC, int kA, int kB>
void multiply_add() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}

struct Term { int a, b; };             // parts

constexpr Term kTerms[] = {{0, 2}, {0, 1}, {0, 0}, {1, 0}, {1, 1}, {2, 0}};

// One step of kTall x 2 tiles. Tiles 0 to 3 are sums, 4 and 5 are of A, 6 and 7 of B.
template <bool kSwapped, int kTall>
[[gnu::always_inline]] inline void step(const uint16_t* a, int64_t a_tile_step, const uint16_t* b) {
  int a_part = -1, b_part = -1;
#pragma GCC unroll 6
  for (Term term : kTerms) {
    if (kSwapped) term = {term.b, term.a};
    if (a_part != term.a) {
      load<4>(a + term.a * kUnitTile, 64);
      if (kTall == 2) load<5>(a + a_tile_step + term.a * kUnitTile, 64);
    }
    if (b_part != term.b) {
      load<6>(b + 2 * term.b * kUnitTile, 64);
      load<7>(b + (2 * term.b + 1) * kUnitTile, 64);
    }
    a_part = term.a, b_part = term.b;
    multiply_add<0, 4, 6>();
    multiply_add<1, 4, 7>();
    if (kTall == 2) multiply_add<2, 5, 6>(), multiply_add<3, 5, 7>();
  }
}

template <bool kSwapped, int kTall>
void sum_steps(const UnitProduct& p, const uint16_t* a, float* c, int64_t c_step, Prefetch* next, int64_t lines_a_step) {
  clear<0>(), clear<1>(), clear<2>(), clear<3>();
  for (int64_t i = 0; i < kTall * kUnitLines; ++i) {     // where the sums go, while they are made
    __builtin_prefetch(c + i * c_step, 1);
    __builtin_prefetch(c + i * c_step + 16, 1);
  }
  const uint16_t* b = p.b;
  int64_t a_tile_step = p.steps * kParts * kUnitTile;
  for (int64_t s = 0; s < p.steps; ++s, a += kParts * kUnitTile, b += 2 * kParts * kUnitTile) {
    next->issue(lines_a_step);
    step<kSwapped, kTall>(a, a_tile_step, b);
  }
  store<0>(c, c_step * 4), store<1>(c + 16, c_step * 4);
  if (kTall == 2) store<2>(c + 16 * c_step, c_step * 4), store<3>(c + 16 * c_step + 16, c_step * 4);
}

using SumSteps = void (*)(const UnitProduct&, const uint16_t*, float*, int64_t, Prefetch*, int64_t);

constexpr SumSteps kSums[2][2] = {{sum_steps<false, 1>, sum_steps<false, 2>}, {sum_steps<true, 1>, sum_steps<true, 2>}};

}  // namespace

bool has_matrix_units() {
  static const bool has = processor_has_units() && isa_available(Isa::avx512) && ask_system();
  return has;
}

__attribute__((target("avx512f"))) bool has_nan(const float* x, int64_t step, int64_t rows, int64_t columns) {
  const auto low = static_cast<__mmask16>(columns >= 16 ? 0xFFFF : (1 << columns) - 1);
  const auto high = static_cast<__mmask16>(columns <= 16 ? 0 : (1 << (columns - 16)) - 1);
  __mmask16 found = 0;
  for (int64_t i = 0; i < rows; ++i, x += step) {
    __m512 a = _mm512_maskz_loadu_ps(low, x), b = _mm512_maskz_loadu_ps(high, x + 16);
    found |= _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
  }
  return found != 0;
}

UnitTiles::UnitTiles() {
  const TileConfig config;
  asm volatile("ldtilecfg %0" ::"m"(config));
}

UnitTiles::~UnitTiles() { asm volatile("tilerelease"); }

void multiply_tiles(const UnitProduct& p, int64_t first, int64_t rows, int64_t columns, bool add, float* c, int64_t c_step,
                    Prefetch* next, int64_t lines_a_step) {
  bool tall = rows > kUnitLines, whole = rows == (tall ? 2 : 1) * kUnitLines && columns == kUnitColumns;
  const uint16_t* a = p.a + first * p.steps * kParts * kUnitTile;
  SumSteps sums = kSums[p.swapped][tall];
  if (whole && !add) return sums(p, a, c, c_step, next, lines_a_step);
  alignas(64) float block[2 * kUnitLines * kUnitColumns];
  sums(p, a, block, kUnitColumns, next, lines_a_step);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) c[i * c_step + j] = add ? c[i * c_step + j] + block[i * kUnitColumns + j] : block[i * kUnitColumns + j];
}

}  // namespace sg::cpu
