#include "libpasses/overlap/overlap_phases.h"

#include <algorithm>

namespace sg::overlap_parts {

PhaseBuilder::PhaseBuilder(const Precedence& precedence, const ChunkedRegions& regions, uint32_t region)
    : precedence_(precedence),
      regions_(regions),
      at_(region),
      region_(regions[region]),
      waits_(region_.end - region_.begin, 0),
      done_(region_.end - region_.begin, false) {
  for (uint32_t i = region_.begin; i < region_.end; ++i)
    for (uint32_t b : precedence_.before(i)) waits_[i - region_.begin] += b >= region_.begin;
  for (uint32_t i = region_.begin; i < region_.end; ++i)
    if (waits_[i - region_.begin] == 0) release(i);
}

// One of those that `place` waits for is there.
void PhaseBuilder::count_down(uint32_t place, std::vector<uint32_t>* free) {
  if (place < region_.end && --waits_[place - region_.begin] == 0) free->push_back(place);
}

// Nothing is in the way of `place` any more.
void PhaseBuilder::release(uint32_t place) {
  std::vector<uint32_t> free = {place};
  while (!free.empty()) {
    const uint32_t at = free.back();
    free.pop_back();
    if (is_own(at) && !is_done(at)) {
      ready_[regions_.chunk_of(at)].push_back(at);
      continue;
    }
    if (!is_own(at)) {
      if (is_done(at)) continue;
      set_done(at);
    }
    for (uint32_t s : precedence_.after(at)) count_down(s, &free);
  }
}

void PhaseBuilder::put(uint32_t place) {
  if (is_done(place)) return;
  set_done(place);
  phases_.back().push_back(place);
  std::vector<uint32_t> free;
  for (uint32_t s : precedence_.after(place)) count_down(s, &free);
  for (uint32_t s : free) release(s);
}

void PhaseBuilder::put(const std::vector<uint32_t>& places) {
  for (uint32_t i : places) put(i);
}

// The ready nodes of a chunk as they stand in the schedule, launches and waits only where they are asked for.
std::vector<uint32_t> PhaseBuilder::take_ready(int32_t chunk, bool with_exchanges) {
  std::vector<uint32_t> out, kept;
  for (uint32_t i : ready_[chunk])
    if (!is_done(i))
      (!with_exchanges && (regions_.has(i, kWait) || regions_.has(i, kCollective)) ? kept : out).push_back(i);
  ready_[chunk] = std::move(kept);
  std::ranges::sort(out);
  return out;
}

void PhaseBuilder::fill() {
  open();
  for (bool any = true; any;) {
    any = false;
    std::vector<std::vector<uint32_t>> ready;
    for (int32_t chunk : region_.turns()) ready.push_back(take_ready(chunk, false));
    for (const auto& list : ready) put(list), any |= !list.empty();
  }
}

Status PhaseBuilder::drain() {
  const std::vector<int32_t> turns = region_.turns();
  open();
  for (bool any = true; any;) {
    any = false;
    for (int32_t chunk : turns)
      for (std::vector<uint32_t> ready = take_ready(chunk, true); !ready.empty(); ready = take_ready(chunk, true))
        put(ready), any = true;
  }
  for (int32_t chunk : turns)
    for (uint32_t i : region_.chunks.at(chunk).body)
      if (!is_done(i)) return regions_.refuse(i, "cannot be placed in the phases of " + region_.name);
  return ok_status();
}

// --- for people ---

std::string PhaseBuilder::text() const {
  std::map<uint32_t, std::string> names;
  for (const auto& [index, chunk] : region_.chunks)
    for (uint32_t marker : chunk.markers) {
      const std::string letter = regions_.meta(marker).ep_role == EpRole::combine ? "C" : "D";
      names[marker] = letter + std::to_string(index);
      for (uint32_t s : precedence_.after(marker))
        if (regions_.has(s, kWait)) names[s] = letter + "w" + std::to_string(index);
    }
  std::string out;
  for (const auto& phase : phases_)
    if (!phase.empty()) out += (out.empty() ? "" : " | ") + line_of(phase, names);
  return out;
}

std::string PhaseBuilder::line_of(const std::vector<uint32_t>& phase,
                                  const std::map<uint32_t, std::string>& names) const {
  std::string line;
  auto add = [&](const std::string& word) { line += (line.empty() ? "" : " ") + word; };
  size_t unnamed = 0;
  auto flush = [&] {
    if (unnamed != 0) add(std::to_string(unnamed));
    unnamed = 0;
  };
  for (uint32_t i : phase) {
    auto it = names.find(i);
    if (it == names.end()) {
      ++unnamed;
      continue;
    }
    flush();
    add(it->second);
  }
  flush();
  return line;
}

}  // namespace sg::overlap_parts
