#include "librun/cpu/stream.h"

#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace sg::cpu {

#if defined(__SSE2__)

void stream(std::byte* to, const std::byte* from, int64_t bytes) {
  int64_t head = std::min<int64_t>(bytes, static_cast<int64_t>(-reinterpret_cast<uintptr_t>(to) & 63));
  std::memcpy(to, from, static_cast<size_t>(head));
  int64_t i = head;
  for (; i + 64 <= bytes; i += 64)  // whole cache lines: a partial line would have to be read
    for (int64_t j = i; j < i + 64; j += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + j), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + j)));
  std::memcpy(to + i, from + i, static_cast<size_t>(bytes - i));
}

void finish_streaming() { _mm_sfence(); }

#else

void stream(std::byte* to, const std::byte* from, int64_t bytes) { std::memcpy(to, from, static_cast<size_t>(bytes)); }
void finish_streaming() {}

#endif

}  // namespace sg::cpu
