#include "libgraph/binary/seal.h"

#include <algorithm>
#include <optional>

#include "libgraph/base/sha256.h"

namespace sg {
namespace {

constexpr std::string_view kMagic("SGSEAL\0\1", 8);
constexpr std::string_view kIdentifier = "SGJB";
constexpr size_t kIdentifierOffset = 4;
constexpr size_t kMaxToolBytes = 64;

// A little-endian number at `offset`; none if it is out of bounds.
std::optional<uint64_t> number_at(std::string_view bytes, uint64_t offset, size_t width) {
  if (offset > bytes.size() || bytes.size() - offset < width) return std::nullopt;
  uint64_t value = 0;
  for (size_t i = width; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[offset + i]);
  return value;
}

// The offset of field `id` of the root table; none if it is absent or out of bounds.
std::optional<uint64_t> root_field(std::string_view bytes, size_t id) {
  auto root = number_at(bytes, 0, 4);
  auto to_vtable = root ? number_at(bytes, *root, 4) : std::nullopt;
  if (!to_vtable) return std::nullopt;
  int64_t vtable = static_cast<int64_t>(*root) - static_cast<int32_t>(*to_vtable);
  if (vtable < 0) return std::nullopt;
  auto vtable_bytes = number_at(bytes, static_cast<uint64_t>(vtable), 2);
  if (!vtable_bytes || *vtable_bytes < 4 + 2 * id + 2) return std::nullopt;
  auto field = number_at(bytes, static_cast<uint64_t>(vtable) + 4 + 2 * id, 2);
  if (!field || *field == 0) return std::nullopt;
  return *root + *field;
}

bool is_tool_name(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c > ' ' && c < 0x7F; });
}

bool is_stream(std::string_view file) { return file == "<stdin>" || file == "-"; }

Error truncated(std::string_view head, uint64_t bytes, const std::string& file) {
  std::string size = std::to_string(bytes);
  std::string tool = read_prefix(head).tool;
  Error error{ErrorKind::unreadable, "", {.file = file, .offset = bytes}, ""};
  if (!is_stream(file)) {
    error.message = "the file ends after " + size + " bytes, without its seal";
    if (!tool.empty()) error.message += " (written by " + tool + ")";
    error.hint = "copy it or make it again";
    return error;
  }
  error.message = "the stream" + (tool.empty() ? "" : " from " + tool) + " ended early (after " + size +
                  " bytes): the command before this one failed or was killed";
  error.hint = "look at the messages of the command that wrote it and run it again (bash: set -o pipefail)";
  return error;
}

Error empty_input(const std::string& file) {
  return {ErrorKind::unreadable,
          is_stream(file) ? "empty input: the command before this one in the pipe wrote nothing" : "the file is empty",
          {.file = file, .offset = 0},
          is_stream(file) ? "look at its messages (bash: set -o pipefail)" : "write it again"};
}

Error changed(std::string message, const std::string& file) {
  return {ErrorKind::unreadable,
          std::move(message),
          {.file = file},
          "it was damaged or edited after it was written: get a good copy, or make it again"};
}

}  // namespace

bool looks_binary(std::string_view bytes) {
  return bytes.size() >= kIdentifierOffset + kIdentifier.size() &&
         bytes.substr(kIdentifierOffset, kIdentifier.size()) == kIdentifier;
}

FilePrefix read_prefix(std::string_view bytes) {
  FilePrefix out;
  if (!looks_binary(bytes)) return out;
  auto major_at = root_field(bytes, 1), minor_at = root_field(bytes, 2);
  auto major = major_at ? number_at(bytes, *major_at, 2) : std::nullopt;
  auto minor = minor_at ? number_at(bytes, *minor_at, 2) : std::nullopt;
  out.has_version = major.has_value();
  out.major = static_cast<uint16_t>(major.value_or(0));
  out.minor = static_cast<uint16_t>(minor.value_or(0));

  auto tool_at = root_field(bytes, 0);
  auto to_string = tool_at ? number_at(bytes, *tool_at, 4) : std::nullopt;
  auto size = to_string ? number_at(bytes, *tool_at + *to_string, 4) : std::nullopt;
  if (!size || *size > kMaxToolBytes) return out;
  uint64_t start = *tool_at + *to_string + 4;
  if (start > bytes.size() || bytes.size() - start < *size) return out;
  std::string_view tool = bytes.substr(start, *size);
  if (is_tool_name(tool)) out.tool = tool;
  return out;
}

void seal(std::string* bytes) {
  Sha256::Digest digest = sha256(*bytes);
  uint64_t size = bytes->size();
  bytes->append(kMagic);
  for (int i = 0; i < 8; ++i) bytes->push_back(static_cast<char>(size >> (8 * i)));
  bytes->append(digest.begin(), digest.end());
}

Status check_ends(std::string_view head, std::string_view trailer, uint64_t bytes, const std::string& file) {
  if (trailer.substr(0, kMagic.size()) != kMagic) return truncated(head, bytes, file);
  const uint64_t sealed = *number_at(trailer, kMagic.size(), 8), body = bytes - kTrailerBytes;
  if (sealed != body)
    return changed(
        "the seal is for " + std::to_string(sealed) + " bytes, but there are " + std::to_string(body) + " before it",
        file);
  return ok_status();
}

Result<std::string_view> unseal(std::string_view bytes, const std::string& file) {
  if (bytes.empty()) return empty_input(file);
  if (bytes.size() >= kIdentifierOffset + kIdentifier.size() && !looks_binary(bytes))
    return Error{ErrorKind::unreadable,
                 "this is not a binary graph file",
                 {.file = file, .offset = kIdentifierOffset},
                 "a .sg file has \"SGJB\" at byte 4; use sg-import for captures and sg-parse for text"};
  if (bytes.size() < kTrailerBytes) return truncated(bytes, bytes.size(), file);

  std::string_view trailer = bytes.substr(bytes.size() - kTrailerBytes);
  std::string_view body = bytes.substr(0, bytes.size() - kTrailerBytes);
  SG_TRY(check_ends(bytes, trailer, bytes.size(), file));
  Sha256::Digest digest = sha256(body);
  if (trailer.substr(16) != std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()))
    return changed("the file is corrupted: its SHA-256 is not that of its seal", file);
  return body;
}

}  // namespace sg
