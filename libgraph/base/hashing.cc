#include "libgraph/base/hashing.h"

#include <sys/auxv.h>

#include <cstring>

namespace sg {
namespace {

// Derives the keys from sixteen random bytes that the kernel gives each process; factors are odd.
std::array<uint64_t, 4> draw_keys() {
  uint64_t random[2] = {0x243F6A8885A308D3ull, 0x13198A2E03707344ull};
  if (const auto* bytes = reinterpret_cast<const char*>(::getauxval(AT_RANDOM)))
    std::memcpy(random, bytes, sizeof random);
  std::array<uint64_t, 4> keys;
  for (size_t i = 0; i < keys.size(); ++i)
    keys[i] = folded_product(random[0] + i * 0x9E3779B97F4A7C15ull, random[1] ^ 0xFF51AFD7ED558CCDull) | 1;
  return keys;
}

uint64_t load(const char* p, size_t bytes) {
  uint64_t v = 0;
  std::memcpy(&v, p, bytes);
  return v;
}

}  // namespace

const std::array<uint64_t, 4>& hash_keys() {
  static const std::array<uint64_t, 4> the_keys = draw_keys();
  return the_keys;
}

uint64_t hash_of_text(std::string_view s) {
  const std::array<uint64_t, 4>& keys = hash_keys();
  uint64_t state = keys[0] ^ s.size();
  const char* p = s.data();
  size_t left = s.size();
  for (; left > 16; p += 16, left -= 16) state = folded_product(load(p, 8) ^ keys[1], load(p + 8, 8) ^ state);
  uint64_t first = 0, last = 0;  // the rest: two reads that may overlap
  if (left >= 8) {
    first = load(p, 8), last = load(p + left - 8, 8);
  } else if (left >= 4) {
    first = load(p, 4), last = load(p + left - 4, 4);
  } else if (left > 0) {
    first = load(p, 1) | load(p + left / 2, 1) << 8, last = load(p + left - 1, 1);
  }
  state = folded_product(first ^ keys[1], last ^ state);
  return folded_product(state ^ keys[2], keys[3]);
}

}  // namespace sg
