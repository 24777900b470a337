// What kind of source a file is, told by its content: what sg-import is given.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sg {

enum class SourceKind : uint8_t { capture, pt2, fx, torch_trace, unknown };

std::string_view source_kind_name(SourceKind kind);  // "torch-trace", as --from takes it
std::optional<SourceKind> source_kind_named(std::string_view name);
SourceKind source_kind_of(std::string_view head);  // the first bytes of a file: 64 KiB are enough
bool is_trace_log_name(std::string_view name);     // as PyTorch calls the logs in the folder that TORCH_TRACE names
SourceKind source_kind_of_folder(std::span<const std::string> entries);  // by the names in it

}  // namespace sg
