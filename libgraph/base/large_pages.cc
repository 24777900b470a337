#include "libgraph/base/large_pages.h"

#include <sys/mman.h>

#include <cstdint>

namespace sg {
namespace {

constexpr size_t kPage = size_t{2} << 20;
constexpr size_t kLeastBytes = 2 * kPage;  // so that at least one whole page lies inside

}  // namespace

void advise_large_pages(const void* data, size_t bytes) {
  if (bytes < kLeastBytes) return;
#ifdef MADV_HUGEPAGE
  auto begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) / kPage * kPage;
  auto end = (reinterpret_cast<uintptr_t>(data) + bytes) / kPage * kPage;
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // if the advice is refused, nothing changes
#else
  (void)data;
#endif
}

}  // namespace sg
