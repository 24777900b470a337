// SHA-256, the one digest of the project.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "libgraph/base/hex.h"  // how digests are written

namespace sg {

class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;
  using Compress = void (*)(uint32_t* state, const uint8_t* data, size_t blocks);
  enum class Path : uint8_t { fastest, portable };  // with the CPU's SHA instructions where it has them, or without

  explicit Sha256(Path path = Path::fastest);
  void update(std::string_view bytes);
  Digest finish();  // REQUIRES: called once

 private:
  Compress compress_;
  uint32_t state_[8];
  uint8_t block_[64];
  size_t block_used_ = 0;
  uint64_t total_bytes_ = 0;
};

Sha256::Digest sha256(std::string_view bytes);
Sha256::Digest sha256_portable(std::string_view bytes);  // for tests: what every machine computes
std::string sha256_tag(std::string_view bytes);          // "sha256:<hex>"

}  // namespace sg
