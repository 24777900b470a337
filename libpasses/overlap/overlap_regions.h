// What the strategy reference learns of a program before it orders anything: the chunked regions, and in each the token
// exchanges and what must come before them. Internal to sg-overlap; overlap_reference.cc says what it is for.
//
// Region    what sg-chunk or the capture says: module, direction, chunk. Chunks take turns: forward 0, 1, ...; backward
//           the other way round.
// Marker    the launch of a token exchange. Its closure is what must come before it and is in no earlier closure: nodes
//           of the region, and those of others only as far as they lead back to nodes of the region.
// Copies    of token counts to the host: those that a device makes, all before the first exchange, as many in each
//           chunk.
// Refused   What does not have this shape is an Error with node and rule.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "libgraph/op.h"
#include "libpasses/overlap/overlap_parts.h"

namespace sg::overlap_parts {

inline constexpr uint32_t kNoPlace = 0xFFFFFFFFu;  // and no region

struct RegionChunk {
  std::vector<uint32_t> body;  // places, ascending
  std::vector<uint32_t> markers;
  std::vector<std::vector<uint32_t>> closures;  // by marker; the marker itself left out
  std::vector<uint32_t> copies;                 // of token counts to the host
};

struct ChunkedRegion {
  std::string name;
  bool is_backward = false;
  std::map<int32_t, RegionChunk> chunks;
  uint32_t begin = 0, end = 0;  // places, from its first node to behind its last

  std::vector<int32_t> turns() const;  // its chunks, in the order in which they take turns
  // REQUIRES: it has chunks. All have as many.
  size_t marker_count() const { return chunks.begin()->second.markers.size(); }
};

class ChunkedRegions {
 public:
  // Both outlive this.
  ChunkedRegions(const Program& program, const Precedence& precedence);

  // Finds the regions. One with a label that is not true is an Error; with `refused`, it goes there and the region has
  // no chunks.
  Status collect(std::vector<Error>* refused);
  // Markers, closures and copies of a region. Linear in the edges between its first node and its last.
  Status learn(uint32_t region);

  uint32_t size() const { return static_cast<uint32_t>(regions_.size()); }
  const ChunkedRegion& operator[](uint32_t region) const { return regions_[region]; }
  uint32_t region_of(uint32_t place) const { return owner_[place]; }
  int32_t chunk_of(uint32_t place) const { return chunk_of_[place]; }

  // What must come before any of `places`, of nodes of the region; ascending.
  std::vector<uint32_t> leading_to(uint32_t region, const std::vector<uint32_t>& places);

  bool has(uint32_t place, Trait trait) const;
  const NodeMeta& meta(uint32_t place) const { return graph_.meta(precedence_.node(place)); }
  Error refuse(uint32_t place, std::string what) const;

 private:
  bool is_exchange(uint32_t place) const;
  Status check_labels(std::vector<Error>* refused);
  void drop(uint32_t region);
  Status find_markers(ChunkedRegion* region) const;
  Status check_wait(uint32_t marker) const;
  Status find_closures(uint32_t region);
  Status find_copies(ChunkedRegion* region) const;
  bool copies_counts(uint32_t place) const;
  ValueId argument(uint32_t place) const;
  bool lies_on_host(ValueId v) const;
  // What leads to the places on the stack, and was not met since `stamp_` was given out.
  std::vector<uint32_t> walk_back(uint32_t region, std::vector<uint32_t> stack);

  const Program& program_;
  const Graph& graph_;
  const Precedence& precedence_;
  std::vector<ChunkedRegion> regions_;
  std::vector<uint32_t> owner_;    // by place: its region
  std::vector<int32_t> chunk_of_;  // by place
  std::vector<uint32_t> seen_;     // by place: the last walk that has met it
  uint32_t stamp_ = 0;
};

}  // namespace sg::overlap_parts
