// The binary form (.sg): a FlatBuffers job (schema/graph.fbs) sealed with its length and SHA-256.
//
// Layout   [FlatBuffer][trailer]; the trailer is kTrailerBytes long: 8 bytes "SGSEAL\0\1", u64 little-endian length of
//          the FlatBuffer, 32 bytes SHA-256 of it. A stream that ends early has no trailer and is refused by its
//          reader.
// Bytes    Equal jobs give equal bytes, on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libgraph/base/result.h"
#include "libgraph/job.h"

namespace sg {

inline constexpr uint16_t kSchemaMajor = 1;
inline constexpr uint16_t kSchemaMinor = 0;
inline constexpr size_t kTrailerBytes = 48;

bool looks_binary(std::string_view bytes);  // has our file identifier where it belongs; true also when truncated

// The sealed bytes of `job`; fails when it would pass the 2 GiB a FlatBuffer can hold.
Result<std::string> write_binary(const Job& job);

// The same bytes, looked up in `pool`, a copy of the job's: what interns into the job's own meanwhile, as the verifier
// does, may do so on another thread.
Result<std::string> write_binary(const Job& job, const Pool& pool);

// Checks seal, version and structure, then builds the job. Semantic checks are the verifier's. `file` is for messages.
Result<Job> read_binary(std::string_view bytes, const std::string& file);

// The same below the seal: any bytes. Never crashes, hangs or allocates out of proportion to the input.
Result<Job> read_unsealed(std::string_view bytes, const std::string& file);

}  // namespace sg
