// --numerics: how floats are computed.
#pragma once

#include <cstdint>

namespace sg {

enum class Numerics : uint8_t { fast, strict, f64 };

// Which products of bf16 are summed in the order of k under `fast`, where matrix units have another: value_choice.h.
enum class SumOrder : uint8_t { free, forward, all };

}  // namespace sg
