// What kind of source a file is, told by its content: what sg-import is given.
#pragma once

#include <cstdint>
#include <string_view>

namespace sg {

enum class SourceKind : uint8_t { capture, pt2, fx, torch_trace, unknown };

std::string_view source_kind_name(SourceKind kind);      // "torch-trace", as --from takes it
SourceKind source_kind_of(std::string_view bytes);

}  // namespace sg
