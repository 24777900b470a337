// Layers of a model, by the names of its modules: what prefetch distances and boundaries are counted in.
#pragma once

#include <cstdint>
#include <string_view>

namespace sg {

// The number of the layer that a module lies in: the first component of its name that is one ("layers.3.attention" is 3).
// -1 = in none.
int32_t layer_of(std::string_view module);

}  // namespace sg
