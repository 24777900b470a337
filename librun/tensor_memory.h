// Memory for tensors that live as long as their owner: inputs, and what an optimizer keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "libgraph/base/result.h"

namespace sg {

// Memory owned by this object, aligned to 64 bytes, not initialised.
class TensorMemory {
 public:
  Result<std::byte*> take(int64_t bytes);  // `missing` if there is not enough
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> blocks_;
  int64_t bytes_ = 0;
};

}  // namespace sg
