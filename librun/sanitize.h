// Tells AddressSanitizer about memory that we allocate instead of malloc.
#pragma once

#include <cstddef>

#ifdef __has_feature
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1  // as gcc defines it
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace sg {

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kSeesAddresses = true;
inline void poison(const void* begin, size_t bytes) { __asan_poison_memory_region(begin, bytes); }
inline void unpoison(const void* begin, size_t bytes) { __asan_unpoison_memory_region(begin, bytes); }
#else
inline constexpr bool kSeesAddresses = false;
inline void poison(const void*, size_t) {}
inline void unpoison(const void*, size_t) {}
#endif

}  // namespace sg
