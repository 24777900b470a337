// The seal: a trailer of length and SHA-256 that says "all of it is here, and nothing was changed".
//
// A stream whose writer died has no trailer, so the next tool in a pipe refuses it instead of working on half a graph.
#pragma once

#include <string>
#include <string_view>

#include "libgraph/base/result.h"
#include "libgraph/binary/binary.h"

namespace sg {

// What can be read at the very front of a file, though the rest may be missing or broken.
struct FilePrefix {
  std::string tool;  // the last tool that wrote the job; empty = none, or not readable
  bool has_version = false;
  uint16_t major = 0, minor = 0;
};

// Never fails: what cannot be read stays empty.
FilePrefix read_prefix(std::string_view bytes);

// Appends the trailer for what `bytes` holds.
void seal(std::string* bytes);

// The most that a file can hold: a FlatBuffer, and the seal.
inline constexpr uint64_t kMaxBinaryBytes = (uint64_t{1} << 31) + kTrailerBytes;

// What unseal() says of a file that has this beginning, these last kTrailerBytes and so many bytes, without the rest.
Status check_ends(std::string_view head, std::string_view trailer, uint64_t bytes, const std::string& file);

// The bytes below the seal, or an unreadable Error: empty, not ours, truncated (names the tool that wrote it), changed.
Result<std::string_view> unseal(std::string_view bytes, const std::string& file);

}  // namespace sg
