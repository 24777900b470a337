#include "librun/tensor_memory.h"

#include <algorithm>
#include <limits>

#include "librun/execute/memory.h"

namespace sg {

Result<std::byte*> TensorMemory::take(int64_t bytes) {
  if (bytes > std::numeric_limits<int64_t>::max() / 2)
    return Error{ErrorKind::missing, std::to_string(bytes) + " bytes are more than any machine has", {}, {}};
  SG_TRY(require_memory(bytes));
  auto size = (static_cast<size_t>(bytes) + 63) / 64 * 64;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, std::max<size_t>(size, 64)));
  if (memory == nullptr)
    return Error{ErrorKind::missing, "not enough memory for " + std::to_string(bytes) + " bytes", {}, {}};
  blocks_.emplace_back(memory);
  bytes_ += bytes;
  return memory;
}

}  // namespace sg
