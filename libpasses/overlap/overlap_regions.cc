#include "libpasses/overlap/overlap_regions.h"

#include <algorithm>

#include "libgraph/facts/collective_roles.h"

namespace sg::overlap_parts {
namespace {

std::string of_chunk(int32_t index, const ChunkedRegion& region) {
  return "chunk " + std::to_string(index) + " of " + region.name;
}

}  // namespace

std::vector<int32_t> ChunkedRegion::turns() const {
  std::vector<int32_t> out;
  for (const auto& [index, chunk] : chunks) out.push_back(index);
  if (is_backward) std::ranges::reverse(out);
  return out;
}

ChunkedRegions::ChunkedRegions(const Program& program, const Precedence& precedence)
    : program_(program),
      graph_(program.graph),
      precedence_(precedence),
      owner_(precedence.size(), kNoPlace),
      chunk_of_(precedence.size(), -1),
      seen_(precedence.size(), 0) {}

bool ChunkedRegions::has(uint32_t place, Trait trait) const {
  const OpInfo* op = graph_.op_info(precedence_.node(place));
  return op != nullptr && op->has(trait);
}

bool ChunkedRegions::is_exchange(uint32_t place) const { return sg::is_exchange(graph_, precedence_.node(place)); }

Error ChunkedRegions::refuse(uint32_t place, std::string what) const {
  Error out{ErrorKind::cannot_apply,
            std::move(what),
            {},
            "sg-overlap --strategy model needs no chunks; --best-effort leaves this region as it is"};
  out.where.path = place_of(program_, graph_, precedence_.node(place));
  return out;
}

// --- which nodes ---

Status ChunkedRegions::collect(std::vector<Error>* refused) {
  std::map<std::pair<StrId, bool>, uint32_t> known;
  for (uint32_t i = 0; i < precedence_.size(); ++i) {
    const ChunkInfo& chunk = meta(i).chunk;
    if (chunk.region.is_none() || chunk.role.is_none() || chunk.index < 0 ||
        graph_.pool().strings[chunk.role] != "body")
      continue;
    const bool backward =
        chunk.is_backward == 1 || (chunk.is_backward < 0 && graph_.node(precedence_.node(i)).phase != Phase::forward);
    auto [it, added] = known.try_emplace({chunk.region, backward}, size());
    if (added) regions_.push_back({std::string(graph_.pool().strings[chunk.region]), backward, {}, i, i + 1});
    ChunkedRegion& region = regions_[it->second];
    owner_[i] = it->second;
    chunk_of_[i] = chunk.index;
    region.chunks[chunk.index].body.push_back(i);
    region.end = i + 1;
  }
  return check_labels(refused);
}

// What is called an exchange must be one, or the wait for one.
Status ChunkedRegions::check_labels(std::vector<Error>* refused) {
  for (uint32_t i = 0; i < precedence_.size(); ++i) {
    if (meta(i).ep_step != EpStep::token_exchange || owner_[i] == kNoPlace || is_exchange(i)) continue;
    if (has(i, kWait) || has(i, kView) || has(i, kSize)) continue;
    Error error = refuse(i, "is marked as a token exchange, but neither launches one nor waits for one");
    if (!refused) return error;
    refused->push_back(std::move(error));
    drop(owner_[i]);
  }
  return ok_status();
}

void ChunkedRegions::drop(uint32_t region) {
  for (auto& [index, chunk] : regions_[region].chunks)
    for (uint32_t i : chunk.body) owner_[i] = kNoPlace;
  regions_[region].chunks.clear();
}

Status ChunkedRegions::learn(uint32_t region) {
  SG_TRY(find_markers(&regions_[region]));
  if (regions_[region].marker_count() == 0) return ok_status();
  SG_TRY(find_closures(region));
  return find_copies(&regions_[region]);
}

// --- markers ---

Status ChunkedRegions::find_markers(ChunkedRegion* region) const {
  for (auto& [index, chunk] : region->chunks) {
    for (uint32_t i : chunk.body)
      if (is_exchange(i) && meta(i).ep_step == EpStep::token_exchange) chunk.markers.push_back(i);
    for (uint32_t m : chunk.markers) SG_TRY(check_wait(m));
  }
  const RegionChunk& first = region->chunks.begin()->second;
  for (const auto& [index, chunk] : region->chunks) {
    if (chunk.markers.size() != first.markers.size())
      return refuse(chunk.body[0], of_chunk(index, *region) + " has " + std::to_string(chunk.markers.size()) +
                                       " token exchanges, another has " + std::to_string(first.markers.size()));
    for (size_t k = 0; k < chunk.markers.size(); ++k)
      if (meta(chunk.markers[k]).ep_role != meta(first.markers[k]).ep_role)
        return refuse(chunk.markers[k], of_chunk(index, *region) + " dispatches where another combines");
  }
  return ok_status();
}

Status ChunkedRegions::check_wait(uint32_t marker) const {
  size_t waits = 0;
  for (uint32_t s : precedence_.after(marker))
    waits += has(s, kWait) && owner_[s] == owner_[marker] && chunk_of_[s] == chunk_of_[marker] &&
             precedence_.facts().alias().launch_of(argument(s)) == precedence_.node(marker);
  if (waits != 1)
    return refuse(marker, "a token exchange needs one wait in its chunk, this one has " + std::to_string(waits));
  return ok_status();
}

// Of a wait or a copy: what it takes.
ValueId ChunkedRegions::argument(uint32_t place) const {
  const Node& node = graph_.node(precedence_.node(place));
  for (const Arg& arg : node.args)
    if (arg.is(ArgKind::value)) return arg.as_value();
  return node.result(0);
}

// --- closures ---

std::vector<uint32_t> ChunkedRegions::walk_back(uint32_t region, std::vector<uint32_t> stack) {
  std::vector<uint32_t> out;
  while (!stack.empty()) {
    const uint32_t at = stack.back();
    stack.pop_back();
    for (uint32_t b : precedence_.before(at)) {
      if (b < regions_[region].begin || seen_[b] == stamp_) continue;  // before the region there is nothing of it
      seen_[b] = stamp_;
      stack.push_back(b);
      if (owner_[b] == region) out.push_back(b);
    }
  }
  std::ranges::sort(out);
  return out;
}

std::vector<uint32_t> ChunkedRegions::leading_to(uint32_t region, const std::vector<uint32_t>& places) {
  ++stamp_;
  return walk_back(region, places);
}

// One walk over the region for all of its markers: what was met before has all that is behind it in a closure.
Status ChunkedRegions::find_closures(uint32_t r) {
  ChunkedRegion& region = regions_[r];
  ++stamp_;
  for (size_t k = 0; k < region.marker_count(); ++k)
    for (int32_t index : region.turns()) {
      RegionChunk& chunk = region.chunks[index];
      seen_[chunk.markers[k]] = stamp_;
      std::vector<uint32_t> closure = walk_back(r, {chunk.markers[k]});
      for (size_t later = k + 1; later < region.marker_count(); ++later)
        if (std::ranges::binary_search(closure, chunk.markers[later]))
          return refuse(chunk.markers[k], "a token exchange depends on a later one of its chunk");
      chunk.closures.push_back(std::move(closure));
    }
  return ok_status();
}

// --- copies of token counts ---

Status ChunkedRegions::find_copies(ChunkedRegion* region) const {
  std::optional<size_t> count;
  for (auto& [index, chunk] : region->chunks) {
    for (uint32_t i : chunk.body) {
      if (!copies_counts(i)) continue;
      if (!lies_on_host(graph_.node(precedence_.node(i)).result(0)))
        return refuse(i, "a copy of token counts must go to the CPU");
      if (!std::ranges::binary_search(chunk.closures[0], i))
        return refuse(i, "token counts are copied to the host after the exchange that needs them");
      chunk.copies.push_back(i);
    }
    const std::string copies = " copies " + std::to_string(chunk.copies.size()) + " token counts to the host";
    if (count && chunk.copies.size() != *count)
      return refuse(chunk.body[0], of_chunk(index, *region) + copies + ", another copies " + std::to_string(*count));
    if (chunk.copies.size() != 0 && chunk.copies.size() != 2)
      return refuse(chunk.copies[0],
                    of_chunk(index, *region) + copies + "; there are two, what it sends and what it receives");
    count = chunk.copies.size();
  }
  return ok_status();
}

bool ChunkedRegions::copies_counts(uint32_t place) const {
  return meta(place).ep_step == EpStep::count_sync &&
         graph_.op_name(precedence_.node(place)) == "aten._to_copy.default" && !lies_on_host(argument(place));
}

bool ChunkedRegions::lies_on_host(ValueId v) const {
  const Type& type = graph_.type(v);
  return type.kind == TypeKind::tensor && !type.device.is_none() &&
         graph_.pool().strings[type.device].starts_with("cpu");
}

}  // namespace sg::overlap_parts
