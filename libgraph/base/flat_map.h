// Hash tables in one array, for the maps that every node of a graph passes through.
//
// FlatMap       ids to small values.
// FlatIndex     records to their ids: the records lie with the owner, who says which of them are equal.
// FlatTextMap   texts, which lie with the owner, to values.
//
// Cost     One array, no allocation an entry; linear probing, at most two thirds full. Erasing closes the gap, so that
//          a table which lives long does not silt up.
// Order    None can be walked: the order of a hash reaches no output.
// Hostile  Places depend on a number drawn anew in each process (hashing.h): no file can choose entries that collide.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "libgraph/base/hashing.h"
#include "libgraph/base/large_pages.h"

namespace sg {

namespace flat {
inline constexpr size_t kFirstSlots = 16;
// The slots that a table of `count` entries has at least: a power of two.
inline size_t slots_for(size_t count) { return std::bit_ceil(std::max(kFirstSlots, count + count / 2 + 1)); }

template <class Slot>
std::vector<Slot> free_slots(size_t count) {
  std::vector<Slot> slots;
  slots.reserve(slots_for(count));
  advise_large_pages(slots.data(), slots.capacity() * sizeof(Slot));
  slots.resize(slots.capacity());
  return slots;
}
}  // namespace flat

// Key is an Id; none marks a free slot and is no key. Pointers to values are valid until the next insertion or erasure.
template <class Key, class Value>
class FlatMap {
 public:
  size_t size() const { return size_; }
  bool contains(Key key) const { return find(key) != nullptr; }
  const Value* find(Key key) const {
    if (size_ == 0) return nullptr;
    const Slot& slot = slots_[slot_of(key)];
    return slot.key ? &slot.value : nullptr;
  }

  // The value of `key`, which is `value` when the key is new; and whether it is.
  std::pair<Value*, bool> try_emplace(Key key, Value value) {
    if (flat::slots_for(size_ + 1) > slots_.size()) grow(size_ + 1);
    Slot& slot = slots_[slot_of(key)];
    bool is_new = slot.key.is_none();
    if (is_new) slot = {key, std::move(value)}, ++size_;
    return {&slot.value, is_new};
  }

  void erase(Key key) {
    size_t hole = size_ == 0 ? 0 : slot_of(key);
    if (size_ == 0 || !slots_[hole].key) return;
    // Whoever was displaced across the hole moves back into it, and leaves a hole itself.
    for (size_t i = next(hole); slots_[i].key; i = next(i)) {
      if (distance(home(slots_[i].key), i) < distance(hole, i)) continue;
      slots_[hole] = std::move(slots_[i]);
      hole = i;
    }
    slots_[hole] = Slot();
    --size_;
  }

  void reserve(size_t count) {
    if (flat::slots_for(count) > slots_.size()) grow(count);
  }

  void clear() {
    slots_.clear();
    size_ = 0;
  }

 private:
  struct Slot {
    Key key;
    Value value;
  };

  // Eight ids in a row lie in a row: most tables are asked for neighbours one after the other.
  size_t home(Key key) const { return (hash_of_number(key.index >> 3) << 3 | (key.index & 7)) & (slots_.size() - 1); }
  size_t next(size_t i) const { return (i + 1) & (slots_.size() - 1); }
  size_t distance(size_t from, size_t to) const { return (to - from) & (slots_.size() - 1); }

  size_t slot_of(Key key) const {  // where it is, or the free slot where it belongs
    size_t i = home(key);
    while (slots_[i].key && slots_[i].key != key) i = next(i);
    return i;
  }

  void grow(size_t count) {
    std::vector<Slot> old = std::exchange(slots_, flat::free_slots<Slot>(count));
    for (Slot& slot : old)
      if (slot.key) slots_[slot_of(slot.key)] = std::move(slot);
  }

  std::vector<Slot> slots_;  // a power of two, or none
  size_t size_ = 0;
};

class FlatIndex {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFFu;

  // The entry with this hash for which `is_equal(id)` holds, or kNone.
  template <class IsEqual>
  uint32_t find(uint64_t hash, const IsEqual& is_equal) const {
    if (size_ == 0) return kNone;
    for (size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[i];
      if (slot.id == kNone || (slot.hash == static_cast<uint32_t>(hash) && is_equal(slot.id))) return slot.id;
    }
  }

  // REQUIRES: `find` did not find it
  void insert(uint64_t hash, uint32_t id) {
    reserve(++size_);
    place({static_cast<uint32_t>(hash), id});
  }

  void clear() {
    slots_.clear();
    size_ = 0;
  }

  void reserve(size_t count) {
    if (flat::slots_for(count) <= slots_.size()) return;
    std::vector<Slot> old = std::exchange(slots_, flat::free_slots<Slot>(count));
    for (const Slot& slot : old)
      if (slot.id != kNone) place(slot);
  }

 private:
  struct Slot {
    uint32_t hash = 0;  // its low half, which also gives the place
    uint32_t id = kNone;
  };

  void place(Slot slot) {
    size_t i = slot.hash & (slots_.size() - 1);
    while (slots_[i].id != kNone) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = slot;
  }

  std::vector<Slot> slots_;  // a power of two, or none
  size_t size_ = 0;
};

template <class Value>
class FlatTextMap {
 public:
  const Value* find(std::string_view text) const {
    uint32_t i = slot_of(text, hash_of_text(text));
    return i == FlatIndex::kNone ? nullptr : &entries_[i].value;
  }

  // The value of `text`, which is `value` when the text is new; and whether it is.
  std::pair<Value*, bool> try_emplace(std::string_view text, Value value) {
    uint64_t hash = hash_of_text(text);
    uint32_t i = slot_of(text, hash);
    bool is_new = i == FlatIndex::kNone;
    if (is_new) {
      i = static_cast<uint32_t>(entries_.size());
      entries_.push_back({text, std::move(value)});
      index_.insert(hash, i);
    }
    return {&entries_[i].value, is_new};
  }

  size_t size() const { return entries_.size(); }
  void reserve(size_t count) {
    entries_.reserve(count);
    index_.reserve(count);
  }
  void clear() {
    entries_.clear();
    index_.clear();
  }

 private:
  struct Entry {
    std::string_view text;
    Value value;
  };
  uint32_t slot_of(std::string_view text, uint64_t hash) const {
    return index_.find(hash, [&](uint32_t i) { return entries_[i].text == text; });
  }

  std::vector<Entry> entries_;
  FlatIndex index_;
};

}  // namespace sg
