#include "libgraph/base/strings.h"

#include <algorithm>
#include <cstring>

#include "libgraph/base/hashing.h"
#include "libgraph/base/large_pages.h"

namespace sg {
namespace {

constexpr size_t kFirstBlockBytes = size_t{1} << 16;
constexpr size_t kMostDoublings = 8;

}  // namespace

StringTable::StringTable(const StringTable& other) : index_(other.index_) {
  size_t bytes = 0;
  for (std::string_view s : other.strings_) bytes += s.size();
  blocks_.push_back(std::make_unique_for_overwrite<char[]>(bytes));
  advise_large_pages(blocks_.back().get(), bytes);
  free_ = blocks_.back().get();
  free_bytes_ = bytes;
  strings_.reserve(other.size());
  for (std::string_view s : other.strings_) strings_.push_back(keep(s));
}

StrId StringTable::intern(std::string_view s) {
  uint64_t hash = hash_of_text(s);
  StrId id = find(s, hash);
  if (id) return id;
  id = StrId(static_cast<uint32_t>(strings_.size()));
  strings_.push_back(keep(s));
  index_.insert(hash, id.index);
  return id;
}

StrId StringTable::find(std::string_view s) const { return find(s, hash_of_text(s)); }

StrId StringTable::find(std::string_view s, uint64_t hash) const {
  return StrId(index_.find(hash, [&](uint32_t i) { return strings_[i] == s; }));
}

void StringTable::reserve(size_t count) {
  strings_.reserve(count);
  advise_large_pages(strings_.data(), strings_.capacity() * sizeof(strings_[0]));
  index_.reserve(count);
}

std::string_view StringTable::keep(std::string_view s) {
  if (s.size() > free_bytes_) {
    size_t size = std::max(kFirstBlockBytes << std::min(blocks_.size(), kMostDoublings), s.size());
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(size));
    advise_large_pages(blocks_.back().get(), size);
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
