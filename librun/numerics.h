// --numerics: how floats are computed.
#pragma once

#include <cstdint>

namespace sg {

enum class Numerics : uint8_t { fast, strict, f64 };

}  // namespace sg
