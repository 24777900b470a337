#include "tools/cli/cli_memory.h"

#include <malloc.h>
#include <unistd.h>

#include <cstdlib>

#include "libgraph/base/large_pages.h"

namespace sg::cli {
namespace {

constexpr int kFirstBytes = 256 << 20;  // initial heap size: address space, not memory
constexpr int kStepBytes = 16 << 20;    // later growth
constexpr int kNeverTrim = 2147483647;
constexpr size_t kFirstBlock = 1 << 20;  // more than the heap has at first

}  // namespace

void prepare_memory() {
#ifdef __GLIBC__
  const char* before = static_cast<const char*>(::sbrk(0));
  ::mallopt(M_MMAP_MAX, 0);  // no block is a mapping of its own
  ::mallopt(M_TRIM_THRESHOLD, kNeverTrim);
  ::mallopt(M_TOP_PAD, kFirstBytes);
  void* volatile block = std::malloc(kFirstBlock);  // fails if address space is short; the next block asks for less
  std::free(block);
  ::mallopt(M_TOP_PAD, kStepBytes);
  const char* after = static_cast<const char*>(::sbrk(0));  // equals `before` if malloc is not glibc's (sanitizers)
  advise_large_pages(before, static_cast<size_t>(after - before));
#endif
}

}  // namespace sg::cli
