// --bind: the number of one size, as a user gives it. What it does to a program's sizes: input_sizes.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/result.h"

namespace sg {

// One --bind: a symbol `s0=16`, or one dimension of an input by its name or FQN `tokens[0]=16`, `tokens[-1]=16`.
struct SizeBinding {
  std::string text;  // as given, for messages
  std::string name;
  std::optional<int64_t> dimension;  // none = `name` is a symbol
  int64_t value = 0;
  std::vector<uint32_t> ranks = {};  // it is about the program of these alone; empty = about all programs
};
Result<SizeBinding> parse_binding(std::string_view text);

}  // namespace sg
