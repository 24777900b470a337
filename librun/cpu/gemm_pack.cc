#include "librun/cpu/gemm_pack.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <type_traits>

#include "librun/cpu/isa.h"

namespace sg::cpu {
namespace {

constexpr int64_t kSide = 16;  // side of the square that is transposed at a time

#ifdef __x86_64__
// The CPU's own f16 conversions, which compilers do not derive from our code; the same bits.
#define SG_TARGET_WIDE [[gnu::target("avx512f,avx512bw,avx512vl")]]

__mmask16 first_of_16(int64_t count) { return count < 16 ? static_cast<__mmask16>((1u << count) - 1) : 0xFFFF; }

SG_TARGET_WIDE void convert_wide(const F16* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 mask = first_of_16(count - i);
    _mm512_mask_storeu_ps(to + i, mask, _mm512_maskz_cvtph_ps(mask, _mm256_maskz_loadu_epi16(mask, from + i)));
  }
}

SG_TARGET_WIDE void convert_wide(const float* from, int64_t count, F16* to) {
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 mask = first_of_16(count - i);
    const __m512 part = _mm512_maskz_loadu_ps(mask, from + i);
    _mm256_mask_storeu_epi16(to + i, mask, _mm512_maskz_cvtps_ph(mask, part, _MM_FROUND_TO_NEAREST_INT));
  }
}

#undef SG_TARGET_WIDE
#endif

template <class To, class From>
constexpr bool kIsHalfOfFloat = (std::is_same_v<To, float> && std::is_same_v<From, F16>) ||
                                (std::is_same_v<To, F16> && std::is_same_v<From, float>);

// All rows in one call, so that its clone is selected once: rows of a panel are short.
template <class To, class From>
SG_CLONES void convert_each_row(const From* from, int64_t from_step, int64_t rows, int64_t columns, To* to,
                                int64_t to_step) {
  if (columns == kMaxTileColumns) {
    for (int64_t i = 0; i < rows; ++i, from += from_step, to += to_step)
      for (int j = 0; j < kMaxTileColumns; ++j) to[j] = converted<To>(from[j]);
  } else {
    for (int64_t i = 0; i < rows; ++i, from += from_step, to += to_step)
      for (int64_t j = 0; j < columns; ++j) to[j] = converted<To>(from[j]);
  }
}

template <class To, class From>
void convert_rows(const From* from, int64_t from_step, int64_t rows, int64_t columns, To* to, int64_t to_step) {
#ifdef __x86_64__
  if constexpr (kIsHalfOfFloat<To, From>)
    if (best_isa() == Isa::avx512) {
      for (int64_t i = 0; i < rows; ++i) convert_wide(from + i * from_step, columns, to + i * to_step);
      return;
    }
#endif
  convert_each_row(from, from_step, rows, columns, to, to_step);
}

template <class To, class From>
void transpose_square(const TileKernels<To>& kernels, const From* from, int64_t from_step, To* to, int64_t to_step) {
  if constexpr (std::is_same_v<To, From>) {
    kernels.transpose(from, from_step, to, to_step);
  } else {
    alignas(64) To square[kSide * kSide];
    convert_rows(from, from_step, kSide, kSide, square, kSide);
    kernels.transpose(square, kSide, to, to_step);
  }
}

// from: rows of `to` are contiguous here, columns are column_step apart.
template <class To, class From>
void pack_transposed(const TileKernels<To>& kernels, const From* from, int64_t column_step, int64_t rows,
                     int64_t columns, To* to, int64_t to_step) {
  int64_t whole_rows = rows / kSide * kSide, whole_columns = columns / kSide * kSide;
  for (int64_t j = 0; j < whole_columns; j += kSide)
    for (int64_t i = 0; i < whole_rows; i += kSide)
      transpose_square(kernels, from + j * column_step + i, column_step, to + i * to_step + j, to_step);
  auto rest = [&](int64_t i0, int64_t j0, int64_t j1) {
    for (int64_t j = j0; j < j1; ++j)
      for (int64_t i = i0; i < rows; ++i) to[i * to_step + j] = converted<To>(from[j * column_step + i]);
  };
  rest(whole_rows, 0, whole_columns);
  rest(0, whole_columns, columns);
}

}  // namespace

template <class T>
void pack_block(const TileKernels<T>& kernels, const MatrixView& from, int64_t rows, int64_t columns, T* to,
                int64_t to_step) {
  visit_floating(from.dtype, [&]<class From>() {
    auto* data = reinterpret_cast<const From*>(from.data);
    if (from.column_step == 1) {
      convert_rows(data, from.row_step, rows, columns, to, to_step);
    } else if (from.row_step == 1) {
      pack_transposed(kernels, data, from.column_step, rows, columns, to, to_step);
    } else {
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
          to[i * to_step + j] = converted<T>(data[i * from.row_step + j * from.column_step]);
    }
  });
}

template <class T>
void store_block(const T* from, int64_t step, const MatrixView& out, int64_t rows, int64_t columns) {
  visit_floating(out.dtype, [&]<class Out>() {
    auto* to = reinterpret_cast<Out*>(const_cast<std::byte*>(out.data));
    if (out.column_step == 1) return convert_rows(from, step, rows, columns, to, out.row_step);
    for (int64_t i = 0; i < rows; ++i, from += step, to += out.row_step)
      for (int64_t j = 0; j < columns; ++j) to[j * out.column_step] = converted<Out>(from[j]);
  });
}

template <class T>
void pack_left(const TileKernels<T>& kernels, const MatrixView& a, int64_t rows, int64_t k, T* to, int64_t to_step) {
  pack_block(kernels, a, rows, k, to, to_step);
}

template <class T>
void pack_right(const TileKernels<T>& kernels, const MatrixView& b, int64_t k, int64_t columns, T* to,
                int64_t to_step) {
  pack_block(kernels, b, k, columns, to, to_step);
}

template void pack_block(const TileKernels<float>&, const MatrixView&, int64_t, int64_t, float*, int64_t);
template void pack_block(const TileKernels<double>&, const MatrixView&, int64_t, int64_t, double*, int64_t);
template void store_block(const float*, int64_t, const MatrixView&, int64_t, int64_t);
template void store_block(const double*, int64_t, const MatrixView&, int64_t, int64_t);
template void pack_left(const TileKernels<float>&, const MatrixView&, int64_t, int64_t, float*, int64_t);
template void pack_left(const TileKernels<double>&, const MatrixView&, int64_t, int64_t, double*, int64_t);
template void pack_right(const TileKernels<float>&, const MatrixView&, int64_t, int64_t, float*, int64_t);
template void pack_right(const TileKernels<double>&, const MatrixView&, int64_t, int64_t, double*, int64_t);

}  // namespace sg::cpu
