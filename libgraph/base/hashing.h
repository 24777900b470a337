// Hashes for tables in memory: never written to a file, never an order.
//
// Keyed    Every hash depends on numbers drawn once in a process, so that nobody can prepare a file whose names, types
//          or sizes all collide.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "libgraph/base/ids.h"

namespace sg {

// Drawn when first asked for.
const std::array<uint64_t, 4>& hash_keys();

__extension__ using WideProduct = unsigned __int128;

// Both halves of the product: each bit of the result depends on most bits of `a` and `b`.
inline uint64_t folded_product(uint64_t a, uint64_t b) {
  WideProduct product = static_cast<WideProduct>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_of_number(uint64_t v) { return folded_product(v ^ hash_keys()[0], hash_keys()[1]); }

uint64_t hash_of_text(std::string_view s);

// Hashes a record field by field.
class Hasher {
 public:
  Hasher& mix(uint64_t v) {
    state_ = folded_product(state_ ^ v, keys_[1]);
    return *this;
  }
  template <class Tag>
  Hasher& mix(Id<Tag> id) {
    return mix(static_cast<uint64_t>(id.index));
  }
  template <class List>
  Hasher& mix_all(const List& list) {
    mix(static_cast<uint64_t>(list.size()));
    for (const auto& item : list) mix(item);
    return *this;
  }
  uint64_t value() const { return folded_product(state_ ^ keys_[2], keys_[3]); }

 private:
  const std::array<uint64_t, 4>& keys_ = hash_keys();
  uint64_t state_ = keys_[0];
};

}  // namespace sg
