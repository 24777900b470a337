// What a constant of the graph holds (Input::digest): its elements row by row, little-endian, as safetensors have them.
//
//   bytes:0000803f    few enough to travel in the graph, two hexadecimal digits a byte
//   sha256:9f86d0...  their digest; they lie in a safetensors file, beside the graph as a rule
//
// Equal texts are equal data, so passes and diffs need not know which of the two it is.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace sg {

inline constexpr size_t kMostHeldBytes = 256;  // of a constant that travels in the graph

std::string constant_data(std::string_view bytes);

std::optional<std::string_view> held_digits(std::string_view data);  // none: a digest
std::optional<std::string> held_bytes(std::string_view data);        // none: a digest, or no whole bytes

}  // namespace sg
