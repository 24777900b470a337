// SHA-256, the one digest of the project.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sg {

class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;
  Sha256();
  void update(std::string_view bytes);
  Digest finish();                              // REQUIRES: called once

 private:
  uint32_t state_[8];
  uint8_t block_[64];
  size_t block_used_ = 0;
  uint64_t total_bytes_ = 0;
};

Sha256::Digest sha256(std::string_view bytes);
std::string hex(const Sha256::Digest& digest);
std::string sha256_tag(std::string_view bytes); // "sha256:<hex>"

}  // namespace sg
