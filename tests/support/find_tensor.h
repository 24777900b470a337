// The tensor of a file that has that name; null = none has.
#pragma once

#include <algorithm>
#include <string_view>

#include "libgraph/safetensors.h"

namespace sg::test {

inline const StoredTensor* find_tensor(const TensorFile& file, std::string_view name) {
  const auto& all = file.tensors();
  const auto it = std::find_if(all.begin(), all.end(), [&](const StoredTensor& t) { return t.name == name; });
  return it == all.end() ? nullptr : &*it;
}

}  // namespace sg::test
