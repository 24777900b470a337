// What to write where a text leaves the type of a result out, and its op does not give it: told by whoever needs it.
#pragma once

#include <string_view>

#include "libgraph/op.h"

namespace sg {

inline constexpr std::string_view kDeclareDataSize =
    "its size is known only in a run: declare it before the inputs, as in `symbol u0 data [0, inf]`, and write the "
    "result's type with it, as in `: i64[u0, 2]`";

inline constexpr std::string_view kWriteType = "write the type behind the node, as in `: f32[4, 8]`";

inline std::string_view missing_type_hint(const OpInfo* op) {
  return op != nullptr && op->has(kBindsSymbol) ? kDeclareDataSize : kWriteType;
}

}  // namespace sg
