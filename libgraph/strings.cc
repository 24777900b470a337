#include "libgraph/strings.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

namespace sg {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 16;
constexpr size_t kFirstSlots = 64;

}  // namespace

StringTable::StringTable(const StringTable& other) {
  reserve(other.size());
  for (std::string_view s : other.strings_) intern(s);
}

StrId StringTable::intern(std::string_view s) {
  if (2 * (strings_.size() + 1) > slots_.size()) grow(std::max(kFirstSlots, 2 * slots_.size()));
  uint32_t hash = hash_of(s);
  Slot& slot = slots_[slot_of(s, hash)];
  if (!slot.id) {
    slot = {hash, StrId(static_cast<uint32_t>(strings_.size()))};
    strings_.push_back(keep(s));
  }
  return slot.id;
}

StrId StringTable::find(std::string_view s) const { return slots_[slot_of(s, hash_of(s))].id; }

void StringTable::reserve(size_t count) {
  strings_.reserve(count);
  if (2 * count > slots_.size()) grow(std::bit_ceil(2 * count));
}

uint32_t StringTable::hash_of(std::string_view s) {
  uint64_t h = std::hash<std::string_view>()(s);
  return static_cast<uint32_t>(h ^ h >> 32);
}

size_t StringTable::slot_of(std::string_view s, uint32_t hash) const {
  size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (!slot.id || (slot.hash == hash && strings_[slot.id.index] == s)) return i;
  }
}

void StringTable::grow(size_t slot_count) {
  std::vector<Slot> old = std::move(slots_);
  slots_.assign(slot_count, Slot());
  size_t mask = slot_count - 1;
  for (const Slot& slot : old) {
    if (!slot.id) continue;
    size_t i = slot.hash & mask;
    while (slots_[i].id) i = (i + 1) & mask;
    slots_[i] = slot;
  }
}

std::string_view StringTable::keep(std::string_view s) {
  if (s.size() > free_bytes_) {
    size_t size = std::max(kBlockBytes, s.size());
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(size));
    free_ = blocks_.back().get();
    free_bytes_ = size;
  }
  if (!s.empty()) std::memcpy(free_, s.data(), s.size());
  std::string_view kept(free_, s.size());
  free_ += s.size();
  free_bytes_ -= s.size();
  return kept;
}

}  // namespace sg
