#include "tools/cli_memory.h"

#include <malloc.h>
#include <unistd.h>

#include <cstdlib>

#include "libgraph/large_pages.h"

namespace sg::cli {
namespace {

constexpr int kStepBytes = 64 << 20;           // by which the heap grows
constexpr int kOwnMappingBytes = 32 << 20;     // blocks from here on get a mapping of their own; the most that is allowed
constexpr int kNeverTrim = 2147483647;
constexpr size_t kFirstBlock = 1 << 20;        // more than the heap has at the start

}  // namespace

void prepare_memory() {
#ifdef __GLIBC__
  const char* before = static_cast<const char*>(::sbrk(0));
  ::mallopt(M_TOP_PAD, kStepBytes);
  ::mallopt(M_MMAP_THRESHOLD, kOwnMappingBytes);
  ::mallopt(M_TRIM_THRESHOLD, kNeverTrim);
  void* block = std::malloc(kFirstBlock);
  if (block == nullptr) ::mallopt(M_TOP_PAD, 0);
  std::free(block);
  const char* after = static_cast<const char*>(::sbrk(0));   // the same where malloc is not glibc's: sanitizers
  advise_large_pages(before, static_cast<size_t>(after - before));
#endif
}

}  // namespace sg::cli
