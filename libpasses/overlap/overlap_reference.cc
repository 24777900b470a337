// Strategy reference: TorchTitan's phases for chunked modules with token exchanges, for any number of chunks.
//
// Regions   chunked modules, their exchanges (markers) and what must come before each (closures): overlap_regions.h.
// Phases    for each marker: its closure for each chunk in turn (waits of earlier exchanges included), then what is
//           ready of later closures and of the rest, but no launch and no wait. At last the rest, chunk by chunk.
// First     where the region is the module of the exchange itself, the closures of all chunks come before the launches
//           of all; copies of token counts to the host come together, and all but the last need not block.
#include <map>

#include "libpasses/overlap/overlap_phases.h"

namespace sg::overlap_parts {
namespace {

class ReferencePlanner {
 public:
  ReferencePlanner(const Program& program, const Precedence& precedence)
      : precedence_(precedence), regions_(program, precedence) {}

  Result<ReferenceOrder> run(std::vector<Error>* refused) {
    SG_TRY(regions_.collect(refused));
    for (uint32_t r = 0; r < regions_.size(); ++r) {
      Status planned = plan(r);
      if (planned.ok()) continue;
      if (!refused) return std::move(planned.error());
      say(r, {}, planned.error().message);
      refused->push_back(std::move(planned.error()));
    }
    out_.order = precedence_.sorted(edges_);
    if (out_.order.size() != precedence_.size())
      return Error{
          ErrorKind::cannot_apply, "the phases of two regions wait for each other", {}, "use --strategy model"};
    return std::move(out_);
  }

 private:
  void say(uint32_t r, std::string phases, std::string skipped) {
    out_.regions.push_back({regions_[r].name, regions_[r].is_backward, std::move(phases), std::move(skipped)});
  }

  Status plan(uint32_t r) {
    const ChunkedRegion& region = regions_[r];
    if (region.chunks.empty()) return ok_status();
    if (region.chunks.size() < 2)
      return regions_.refuse(region.chunks.begin()->second.body[0],
                             "the region " + region.name + " has only one chunk");
    SG_TRY(regions_.learn(r));
    if (region.marker_count() == 0) {
      say(r, {}, "no token exchanges");
      return ok_status();
    }
    PhaseBuilder phases(precedence_, regions_, r);
    put_markers(r, &phases);
    SG_TRY(phases.drain());
    keep(phases);
    for (const auto& [index, chunk] : region.chunks)
      for (uint32_t i : chunk.body)
        if (regions_.has(i, kWait) && regions_.meta(i).ep_step == EpStep::token_exchange)
          out_.exchange_waits.push_back(i);
    say(r, phases.text(), {});
    return ok_status();
  }

  // Nodes in phases stay in this order.
  void keep(const PhaseBuilder& phases) {
    uint32_t last = kNoPlace;
    for (const auto& phase : phases.phases())
      for (uint32_t i : phase) {
        if (last != kNoPlace) edges_.emplace_back(last, i);
        last = i;
      }
  }

  void put_markers(uint32_t r, PhaseBuilder* phases) {
    const ChunkedRegion& region = regions_[r];
    const bool together = is_module_of_exchange(region);
    launches_together_[region.name] = together;
    for (size_t k = 0; k < region.marker_count(); ++k) {
      phases->open();
      if (k == 0 && together) {
        put_first_together(r, phases);
      } else {
        for (int32_t index : region.turns()) {
          const RegionChunk& chunk = region.chunks.at(index);
          if (k == 0) put_copies(r, {&chunk}, phases);
          phases->put(chunk.closures[k]);
          phases->put(chunk.markers[k]);
        }
      }
      phases->fill();
    }
  }

  // The first exchanges of all chunks, launched one behind the other.
  void put_first_together(uint32_t r, PhaseBuilder* phases) {
    std::vector<const RegionChunk*> chunks;
    for (int32_t index : regions_[r].turns()) chunks.push_back(&regions_[r].chunks.at(index));
    put_copies(r, chunks, phases);
    for (const RegionChunk* chunk : chunks) phases->put(chunk->closures[0]);
    for (const RegionChunk* chunk : chunks) phases->put(chunk->markers[0]);
  }

  // What the copies of these chunks need, then the copies; the last one blocks, and with it those before it are there.
  void put_copies(uint32_t r, const std::vector<const RegionChunk*>& chunks, PhaseBuilder* phases) {
    std::vector<uint32_t> copies;
    for (const RegionChunk* chunk : chunks) {
      phases->put(regions_.leading_to(r, chunk->copies));
      copies.insert(copies.end(), chunk->copies.begin(), chunk->copies.end());
    }
    for (uint32_t copy : copies) {
      phases->put(copy);
      out_.copies.emplace_back(copy, copy != copies.back());
    }
  }

  // The module of the exchange itself: all that comes before its first exchange has a part in expert parallelism.
  // Around it (a whole block) the chunk's own compute hides the other chunk's exchange. The backward goes as the
  // forward did.
  bool is_module_of_exchange(const ChunkedRegion& region) const {
    if (region.is_backward) {
      const auto forward = launches_together_.find(region.name);
      return forward == launches_together_.end() || forward->second;
    }
    for (const auto& [index, chunk] : region.chunks)
      for (uint32_t i : chunk.closures[0])
        if (regions_.has(i, kContraction) && regions_.meta(i).ep_role == EpRole::none) return false;
    return true;
  }

  const Precedence& precedence_;
  ChunkedRegions regions_;
  ReferenceOrder out_;
  std::vector<std::pair<uint32_t, uint32_t>> edges_;  // place before place: what the phases ask for
  std::map<std::string, bool> launches_together_;     // by name of a region: its first exchanges
};

}  // namespace

Result<ReferenceOrder> reference_order(const Program& program, const Precedence& precedence,
                                       std::vector<Error>* refused) {
  return ReferencePlanner(program, precedence).run(refused);
}

}  // namespace sg::overlap_parts
