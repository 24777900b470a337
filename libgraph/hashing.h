// Hash combining for intern tables. In-memory only: never written to a file, never an order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libgraph/ids.h"

namespace sg {

class Hasher {
 public:
  Hasher& mix(uint64_t v) {
    state_ ^= v + 0x9E3779B97F4A7C15ull + (state_ << 6) + (state_ >> 2);
    state_ *= 0xFF51AFD7ED558CCDull;
    state_ ^= state_ >> 32;
    return *this;
  }
  template <class Tag>
  Hasher& mix(Id<Tag> id) { return mix(static_cast<uint64_t>(id.index)); }
  template <class List>
  Hasher& mix_all(const List& list) {
    mix(static_cast<uint64_t>(list.size()));
    for (const auto& item : list) mix(item);
    return *this;
  }
  size_t value() const { return state_; }

 private:
  uint64_t state_ = 0x243F6A8885A308D3ull;
};

}  // namespace sg
