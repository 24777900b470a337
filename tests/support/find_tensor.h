// The tensor of a file that has that name; null = none has.
#pragma once

#include <algorithm>
#include <string_view>

#include "libgraph/data/safetensors.h"

namespace sg::test {

inline const StoredTensor* find_tensor(const TensorFile& file, std::string_view name) {
  const auto& all = file.tensors();  // sorted by name
  const auto it = std::lower_bound(all.begin(), all.end(), name,
                                   [](const StoredTensor& t, std::string_view n) { return t.name < n; });
  return it != all.end() && it->name == name ? &*it : nullptr;
}

}  // namespace sg::test
