// Internal to binary_write*.cc: a FlatBufferBuilder that finds a table's layout by its hash.
//
// Why      Tables of one layout share its description (the vtable). The original compares each new table with every
//          layout so far, one by one: a job whose metadata comes in thousands of combinations of fields would take
//          quadratic time to write.
// Bytes    The same as the original's: the first table of a layout writes it, the later ones refer to it.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <cstring>
#include <string_view>

#include "libgraph/base/flat_map.h"
#include "libgraph/base/large_pages.h"

namespace sg {

struct LargePageAllocator : flatbuffers::DefaultAllocator {
  uint8_t* allocate(size_t size) override {
    uint8_t* data = DefaultAllocator::allocate(size);
    advise_large_pages(data, size);
    return data;
  }
};

// The allocator is a base so that it is there before the builder and outlives it.
class TableBuilder : private LargePageAllocator, public flatbuffers::FlatBufferBuilder {
 public:
  explicit TableBuilder(size_t first_bytes) : FlatBufferBuilder(first_bytes, this) { DedupVtables(false); }

  // Every table passes through here as soon as it is made. REQUIRES: nothing was written since
  template <class T>
  flatbuffers::Offset<T> share(flatbuffers::Offset<T> table) {
    buf_.scratch_pop(sizeof(flatbuffers::uoffset_t));  // the original's list of layouts: nobody reads it
    std::string_view layout = layout_at(GetSize());
    uint64_t hash = hash_of_text(layout);
    flatbuffers::uoffset_t known = layouts_.find(hash, [&](uint32_t at) { return layout_at(at) == layout; });
    if (known == FlatIndex::kNone) {
      layouts_.insert(hash, GetSize());
      return table;
    }
    buf_.pop(layout.size());
    auto distance = static_cast<flatbuffers::soffset_t>(known) - static_cast<flatbuffers::soffset_t>(table.o);
    flatbuffers::WriteScalar(buf_.data_at(table.o), distance);
    return table;
  }

 private:
  // A layout begins with its own size in bytes. Places count from the end of the buffer, which grows downwards.
  std::string_view layout_at(flatbuffers::uoffset_t place) const {
    const uint8_t* data = buf_.data_at(place);
    return {reinterpret_cast<const char*>(data), flatbuffers::ReadScalar<flatbuffers::voffset_t>(data)};
  }

  FlatIndex layouts_;
};

}  // namespace sg
