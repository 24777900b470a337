// The nodes of one chunked region, put into phases one by one. Internal to sg-overlap; overlap_reference.cc says which
// phases there are.
//
// Ready     A node of the region is ready when all that it needs is in a phase. Nodes of others that lie between are
//           taken to come as soon as they can, and are in no phase.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "libpasses/overlap/overlap_regions.h"

namespace sg::overlap_parts {

class PhaseBuilder {
 public:
  // Both outlive this; `region` has been learned.
  PhaseBuilder(const Precedence& precedence, const ChunkedRegions& regions, uint32_t region);

  void open() { phases_.emplace_back(); }  // REQUIRES: once before anything is put
  void put(uint32_t place);                // into the open phase, unless it is in one
  void put(const std::vector<uint32_t>& places);
  // Opens a phase of what is ready in all chunks at once, again and again, until nothing is; no launch and no wait.
  void fill();
  // Opens one of the rest: a chunk as far as it goes, then the next. An Error where a node never becomes ready.
  Status drain();

  const std::vector<std::vector<uint32_t>>& phases() const { return phases_; }
  // "D0 D1 | Cw0 C0 ...": launches and waits by chunk; what else a phase holds is counted.
  std::string text() const;

 private:
  bool is_own(uint32_t place) const { return regions_.region_of(place) == at_; }
  bool is_done(uint32_t place) const { return done_[place - region_.begin]; }
  void set_done(uint32_t place) { done_[place - region_.begin] = true; }
  void count_down(uint32_t place, std::vector<uint32_t>* free);
  void release(uint32_t place);
  std::vector<uint32_t> take_ready(int32_t chunk, bool with_exchanges);
  std::string line_of(const std::vector<uint32_t>& phase, const std::map<uint32_t, std::string>& names) const;

  const Precedence& precedence_;
  const ChunkedRegions& regions_;
  const uint32_t at_;
  const ChunkedRegion& region_;
  std::vector<std::vector<uint32_t>> phases_;
  std::map<int32_t, std::vector<uint32_t>> ready_;  // by chunk: not in a phase yet
  // By place, from the first of the region on:
  std::vector<uint32_t> waits_;  // how many nodes of this stretch are still to come before it
  std::vector<bool> done_;       // in a phase; of other nodes: nothing is in their way
};

}  // namespace sg::overlap_parts
